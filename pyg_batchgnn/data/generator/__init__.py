"""Generates power-law graphs with communities, features and labels, at any scale.

They have one node type, or several. The same seed gives the same graph.
"""

from pyg_batchgnn.data.generator.spec import GeneratorSpec, PapersSpec, TypedGeneratorSpec
from pyg_batchgnn.data.generator.write import AnySpec, generate, generate_folder

#: One function makes them all. These names say of which parameters.
generate_papers = generate_typed = generate
generate_papers_folder = generate_typed_folder = generate_folder

__all__ = [
    "AnySpec",
    "GeneratorSpec",
    "PapersSpec",
    "TypedGeneratorSpec",
    "generate",
    "generate_folder",
    "generate_papers",
    "generate_papers_folder",
    "generate_typed",
    "generate_typed_folder",
]
