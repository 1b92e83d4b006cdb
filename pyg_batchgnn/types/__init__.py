"""The ground floor: the types that every room may import (design, section 1)."""

from pyg_batchgnn.types.layer_prefix import LayerHops, layers_sampled
from pyg_batchgnn.types.minibatch import (
    ByNumber,
    LabelledLinks,
    Layout,
    SampledEdges,
    SampledLinks,
    SampledMinibatch,
    SampledNodes,
    TripletLinks,
)
from pyg_batchgnn.types.node_pieces import NodePiece, NodePieceRows, OwnedNodes, ReadableRows, SourceValues
from pyg_batchgnn.types.schema import (
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
)

__all__ = [
    "EDGES",
    "EDGE_FEATURES",
    "FEATURES",
    "HOMOGENEOUS",
    "LABELS",
    "NODES",
    "ByNumber",
    "Group",
    "LabelledLinks",
    "LayerHops",
    "Layout",
    "NodePiece",
    "NodePieceRows",
    "OwnedNodes",
    "ReadableRows",
    "Relation",
    "RowKind",
    "SampledEdges",
    "SampledLinks",
    "SampledMinibatch",
    "SampledNodes",
    "Schema",
    "SourceValues",
    "TripletLinks",
    "layers_sampled",
]
