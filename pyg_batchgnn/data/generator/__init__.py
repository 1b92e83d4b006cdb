"""Generates power-law graphs with communities, features and labels, at any scale.

They have one node type, or several. The same seed gives the same graph.
"""

from pyg_batchgnn.data.generator.papers import generate_papers, generate_papers_folder
from pyg_batchgnn.data.generator.spec import GeneratorSpec, PapersSpec, TypedGeneratorSpec
from pyg_batchgnn.data.generator.typed import generate_typed, generate_typed_folder
from pyg_batchgnn.data.generator.write import generate, generate_folder

__all__ = [
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
