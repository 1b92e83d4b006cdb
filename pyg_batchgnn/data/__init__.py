"""Reads data sets from files, makes generated ones, and has one way in to all: `load_dataset`."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.data.bundle import read_bundle
    from pyg_batchgnn.data.check import check_dataset, check_node_counts
    from pyg_batchgnn.data.codes import (
        Progress,
        Quantization,
        QuantizationReport,
        QuantizedTable,
        WideRows,
        quantize,
    )
    from pyg_batchgnn.data.codes_folder import CodedFile, CodedTable, CodesRequest, quantize_folder
    from pyg_batchgnn.data.convert import to_codes
    from pyg_batchgnn.data.dataset import (
        SPLITS,
        Dataset,
        EdgeSet,
        LinkSplit,
        NodeSet,
        class_numbers,
        converted,
        narrow_class_numbers,
    )
    from pyg_batchgnn.data.errors import DatasetError, DatasetNotFoundError
    from pyg_batchgnn.data.folder import open_folder, read_folder, verify_folder
    from pyg_batchgnn.data.folder_convert import ConvertedFolder, convert_folder
    from pyg_batchgnn.data.folder_write import write_folder
    from pyg_batchgnn.data.generator import (
        GeneratorSpec,
        PapersSpec,
        TypedGeneratorSpec,
        generate,
        generate_folder,
        generate_papers,
        generate_papers_folder,
        generate_typed,
        generate_typed_folder,
    )
    from pyg_batchgnn.data.hold_out import hold_out_links, with_reverse_relations
    from pyg_batchgnn.data.keys import Clock, FolderKeys, KeyTable, named_apart, read_ids, whole_below
    from pyg_batchgnn.data.load import available_datasets, default_dataset, load_dataset
    from pyg_batchgnn.data.meta import (
        DECODING_FOLDER,
        LinkArray,
        Meta,
        attribute_array,
        attribute_of,
        decoded_by,
        decoding_array,
        edge_array,
        fitted_encoders,
        group_folder,
        split_array,
        split_of,
        write_meta,
    )
    from pyg_batchgnn.data.ogb import read_ogb
    from pyg_batchgnn.data.pyg import as_dataset, from_pyg
    from pyg_batchgnn.data.undirected import ParallelEdges, is_symmetric, make_undirected
    from pyg_batchgnn.types import (
        EDGE_FEATURES,
        EDGES,
        FEATURES,
        HOMOGENEOUS,
        LABELS,
        NODES,
        Group,
        Relation,
        RowKind,
        Schema,
        reverse_of,
        stored_reverse,
    )
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "DECODING_FOLDER",
    "EDGES",
    "EDGE_FEATURES",
    "FEATURES",
    "HOMOGENEOUS",
    "LABELS",
    "NODES",
    "SPLITS",
    "Clock",
    "CodedFile",
    "CodedTable",
    "CodesRequest",
    "ConvertedFolder",
    "Dataset",
    "DatasetError",
    "DatasetNotFoundError",
    "EdgeSet",
    "FolderKeys",
    "GeneratorSpec",
    "Group",
    "KeyTable",
    "LinkArray",
    "LinkSplit",
    "Meta",
    "NodeSet",
    "PapersSpec",
    "ParallelEdges",
    "Progress",
    "Quantization",
    "QuantizationReport",
    "QuantizedTable",
    "Relation",
    "RowKind",
    "Schema",
    "TypedGeneratorSpec",
    "WideRows",
    "as_dataset",
    "attribute_array",
    "attribute_of",
    "available_datasets",
    "check_dataset",
    "check_node_counts",
    "class_numbers",
    "convert_folder",
    "converted",
    "decoded_by",
    "decoding_array",
    "default_dataset",
    "edge_array",
    "fitted_encoders",
    "from_pyg",
    "generate",
    "generate_folder",
    "generate_papers",
    "generate_papers_folder",
    "generate_typed",
    "generate_typed_folder",
    "group_folder",
    "hold_out_links",
    "is_symmetric",
    "load_dataset",
    "make_undirected",
    "named_apart",
    "narrow_class_numbers",
    "open_folder",
    "quantize",
    "quantize_folder",
    "read_bundle",
    "read_folder",
    "read_ids",
    "read_ogb",
    "reverse_of",
    "split_array",
    "split_of",
    "stored_reverse",
    "to_codes",
    "verify_folder",
    "whole_below",
    "with_reverse_relations",
    "write_folder",
    "write_meta",
]
