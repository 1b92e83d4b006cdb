"""Reads data sets from files, makes generated ones, and has one way in to all: `load_dataset`."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.data.check import check_dataset as check_dataset
    from pyg_batchgnn.data.check import check_node_counts as check_node_counts
    from pyg_batchgnn.data.codes import Progress as Progress
    from pyg_batchgnn.data.codes import Quantization as Quantization
    from pyg_batchgnn.data.codes import QuantizationReport as QuantizationReport
    from pyg_batchgnn.data.codes import QuantizedTable as QuantizedTable
    from pyg_batchgnn.data.codes import WideRows as WideRows
    from pyg_batchgnn.data.codes import quantize as quantize
    from pyg_batchgnn.data.codes_folder import CodedFile as CodedFile
    from pyg_batchgnn.data.codes_folder import CodedTable as CodedTable
    from pyg_batchgnn.data.codes_folder import CodesRequest as CodesRequest
    from pyg_batchgnn.data.codes_folder import quantize_folder as quantize_folder
    from pyg_batchgnn.data.dataset import EDGE_ID as EDGE_ID
    from pyg_batchgnn.data.dataset import REVERSE_ID as REVERSE_ID
    from pyg_batchgnn.data.dataset import SPLITS as SPLITS
    from pyg_batchgnn.data.dataset import Dataset as Dataset
    from pyg_batchgnn.data.dataset import EdgeSet as EdgeSet
    from pyg_batchgnn.data.dataset import LinkSplit as LinkSplit
    from pyg_batchgnn.data.dataset import NodeSet as NodeSet
    from pyg_batchgnn.data.dataset import class_numbers as class_numbers
    from pyg_batchgnn.data.dataset import converted as converted
    from pyg_batchgnn.data.dataset import count_classes as count_classes
    from pyg_batchgnn.data.dataset import narrow_class_numbers as narrow_class_numbers
    from pyg_batchgnn.data.dataset import to_codes as to_codes
    from pyg_batchgnn.data.errors import DatasetError as DatasetError
    from pyg_batchgnn.data.errors import DatasetNotFoundError as DatasetNotFoundError
    from pyg_batchgnn.data.folder import open_folder as open_folder
    from pyg_batchgnn.data.folder import read_folder as read_folder
    from pyg_batchgnn.data.folder import verify_folder as verify_folder
    from pyg_batchgnn.data.folder_convert import ConvertedFolder as ConvertedFolder
    from pyg_batchgnn.data.folder_convert import convert_folder as convert_folder
    from pyg_batchgnn.data.folder_write import write_folder as write_folder
    from pyg_batchgnn.data.generator import GeneratorSpec as GeneratorSpec
    from pyg_batchgnn.data.generator import PapersSpec as PapersSpec
    from pyg_batchgnn.data.generator import TypedGeneratorSpec as TypedGeneratorSpec
    from pyg_batchgnn.data.generator import generate as generate
    from pyg_batchgnn.data.generator import generate_folder as generate_folder
    from pyg_batchgnn.data.generator import generate_papers as generate_papers
    from pyg_batchgnn.data.generator import generate_papers_folder as generate_papers_folder
    from pyg_batchgnn.data.generator import generate_typed as generate_typed
    from pyg_batchgnn.data.generator import generate_typed_folder as generate_typed_folder
    from pyg_batchgnn.data.hold_out import hold_out_links as hold_out_links
    from pyg_batchgnn.data.hold_out import with_reverse_relations as with_reverse_relations
    from pyg_batchgnn.data.keys import Clock as Clock
    from pyg_batchgnn.data.keys import FolderKeys as FolderKeys
    from pyg_batchgnn.data.keys import KeyTable as KeyTable
    from pyg_batchgnn.data.keys import named_apart as named_apart
    from pyg_batchgnn.data.keys import read_ids as read_ids
    from pyg_batchgnn.data.keys import whole_below as whole_below
    from pyg_batchgnn.data.load import available_datasets as available_datasets
    from pyg_batchgnn.data.load import default_dataset as default_dataset
    from pyg_batchgnn.data.load import load_dataset as load_dataset
    from pyg_batchgnn.data.load import read_bundle as read_bundle
    from pyg_batchgnn.data.meta import DECODING_FOLDER as DECODING_FOLDER
    from pyg_batchgnn.data.meta import LinkArray as LinkArray
    from pyg_batchgnn.data.meta import Meta as Meta
    from pyg_batchgnn.data.meta import attribute_array as attribute_array
    from pyg_batchgnn.data.meta import attribute_of as attribute_of
    from pyg_batchgnn.data.meta import decoded_by as decoded_by
    from pyg_batchgnn.data.meta import decoding_array as decoding_array
    from pyg_batchgnn.data.meta import edge_array as edge_array
    from pyg_batchgnn.data.meta import fitted_encoders as fitted_encoders
    from pyg_batchgnn.data.meta import group_folder as group_folder
    from pyg_batchgnn.data.meta import split_array as split_array
    from pyg_batchgnn.data.meta import split_of as split_of
    from pyg_batchgnn.data.meta import write_meta as write_meta
    from pyg_batchgnn.data.ogb import read_ogb as read_ogb
    from pyg_batchgnn.data.pyg import as_dataset as as_dataset
    from pyg_batchgnn.data.pyg import from_pyg as from_pyg
    from pyg_batchgnn.data.undirected import ParallelEdges as ParallelEdges
    from pyg_batchgnn.data.undirected import is_symmetric as is_symmetric
    from pyg_batchgnn.data.undirected import make_undirected as make_undirected
    from pyg_batchgnn.types import EDGE_FEATURES as EDGE_FEATURES
    from pyg_batchgnn.types import EDGES as EDGES
    from pyg_batchgnn.types import FEATURES as FEATURES
    from pyg_batchgnn.types import HOMOGENEOUS as HOMOGENEOUS
    from pyg_batchgnn.types import LABELS as LABELS
    from pyg_batchgnn.types import NODES as NODES
    from pyg_batchgnn.types import Group as Group
    from pyg_batchgnn.types import Relation as Relation
    from pyg_batchgnn.types import RowKind as RowKind
    from pyg_batchgnn.types import Schema as Schema
    from pyg_batchgnn.types import reverse_of as reverse_of
    from pyg_batchgnn.types import stored_reverse as stored_reverse
else:
    __getattr__ = late_names(__name__)
