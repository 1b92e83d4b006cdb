"""Generates power-law graphs with communities, features and labels, at any scale.

Graphs have one node type, or several. The same seed gives the same graph.
"""

from pyg_batchgnn.data.generator.spec import GeneratorSpec as GeneratorSpec
from pyg_batchgnn.data.generator.spec import PapersSpec as PapersSpec
from pyg_batchgnn.data.generator.spec import TypedGeneratorSpec as TypedGeneratorSpec
from pyg_batchgnn.data.generator.write import AnySpec as AnySpec
from pyg_batchgnn.data.generator.write import generate as generate
from pyg_batchgnn.data.generator.write import generate_folder as generate_folder

#: One function makes them all. Its other names tell readers which parameters it takes.
generate_papers = generate_typed = generate
generate_papers_folder = generate_typed_folder = generate_folder
