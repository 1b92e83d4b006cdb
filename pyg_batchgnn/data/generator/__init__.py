"""Power-law graphs with nested communities, features and labels, at any scale, the same for the
same seed."""

from pyg_batchgnn.data.generator.spec import GeneratorSpec
from pyg_batchgnn.data.generator.write import generate, generate_folder

__all__ = ["GeneratorSpec", "generate", "generate_folder"]
