"""Generates power-law graphs with communities, features and labels, at any scale.

They have one node type, or several. The same seed gives the same graph.
"""

from pyg_batchgnn.data.generator.spec import GeneratorSpec, TypedGeneratorSpec
from pyg_batchgnn.data.generator.typed import generate_typed, generate_typed_folder
from pyg_batchgnn.data.generator.write import generate, generate_folder

__all__ = [
    "GeneratorSpec",
    "TypedGeneratorSpec",
    "generate",
    "generate_folder",
    "generate_typed",
    "generate_typed_folder",
]
