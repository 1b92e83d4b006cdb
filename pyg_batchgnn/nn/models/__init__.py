"""The models SAGE, GCN, GIN and GAT of their papers, built from native layers."""

from pyg_batchgnn.nn.layer_steps import ModelOutput as ModelOutput
from pyg_batchgnn.nn.layer_steps import is_row_wise_norm as is_row_wise_norm
from pyg_batchgnn.nn.models.native import GAT as GAT
from pyg_batchgnn.nn.models.native import GCN as GCN
from pyg_batchgnn.nn.models.native import GIN as GIN
from pyg_batchgnn.nn.models.native import SAGE as SAGE
from pyg_batchgnn.nn.models.native import LayerEdges as LayerEdges
from pyg_batchgnn.nn.models.native import NativeModel as NativeModel
from pyg_batchgnn.nn.models.typed import TypedModel as TypedModel
from pyg_batchgnn.nn.models.typed import to_hetero as to_hetero
