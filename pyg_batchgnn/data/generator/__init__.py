"""Generates power-law graphs with nested communities, features and labels, at any scale.

The same seed gives the same graph.
"""

from pyg_batchgnn.data.generator.spec import GeneratorSpec
from pyg_batchgnn.data.generator.write import generate, generate_folder

__all__ = ["GeneratorSpec", "generate", "generate_folder"]
