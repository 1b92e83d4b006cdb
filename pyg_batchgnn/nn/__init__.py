"""The native layers: PyG's convolutions with the same arguments and ``state_dict``.

They reuse memory, work in place where the backward pass allows it, and read features in place.
What PyG's layers support and these do not raises a ValueError.
"""

from pyg_batchgnn.nn.aggregated import Aggregated as Aggregated
from pyg_batchgnn.nn.decoders import DotProductDecoder as DotProductDecoder
from pyg_batchgnn.nn.decoders import MLPDecoder as MLPDecoder
from pyg_batchgnn.nn.decoders import in_batch_log_odds as in_batch_log_odds
from pyg_batchgnn.nn.decoders import in_batch_loss as in_batch_loss
from pyg_batchgnn.nn.edge_features import GINEConv as GINEConv
from pyg_batchgnn.nn.edge_features import NNConv as NNConv
from pyg_batchgnn.nn.gat import GATConv as GATConv
from pyg_batchgnn.nn.gat import GATv2Conv as GATv2Conv
from pyg_batchgnn.nn.gcn import GCNConv as GCNConv
from pyg_batchgnn.nn.gin import GINConv as GINConv
from pyg_batchgnn.nn.hetero import HeteroConv as HeteroConv
from pyg_batchgnn.nn.inference import LayerStep as LayerStep
from pyg_batchgnn.nn.inference import check_cpu as check_cpu
from pyg_batchgnn.nn.inference import check_row_wise as check_row_wise
from pyg_batchgnn.nn.inference import evaluating as evaluating
from pyg_batchgnn.nn.inference import infer_layers as infer_layers
from pyg_batchgnn.nn.inference import nodes_of as nodes_of
from pyg_batchgnn.nn.inputs import ConvInput as ConvInput
from pyg_batchgnn.nn.inputs import HaloPass as HaloPass
from pyg_batchgnn.nn.inputs import LayerGraph as LayerGraph
from pyg_batchgnn.nn.inputs import LayerRows as LayerRows
from pyg_batchgnn.nn.inputs import Rows as Rows
from pyg_batchgnn.nn.inputs import RowView as RowView
from pyg_batchgnn.nn.inputs import conv_input as conv_input
from pyg_batchgnn.nn.inputs import dropout_node as dropout_node
from pyg_batchgnn.nn.inputs import features_by_type as features_by_type
from pyg_batchgnn.nn.inputs import has_halo as has_halo
from pyg_batchgnn.nn.inputs import is_sampled as is_sampled
from pyg_batchgnn.nn.inputs import is_typed as is_typed
from pyg_batchgnn.nn.inputs import layer_graph as layer_graph
from pyg_batchgnn.nn.inputs import layer_rows as layer_rows
from pyg_batchgnn.nn.inputs import named_key as named_key
from pyg_batchgnn.nn.inputs import whole_graph as whole_graph
from pyg_batchgnn.nn.layer_steps import RowProduct as RowProduct
from pyg_batchgnn.nn.layer_steps import Terms as Terms
from pyg_batchgnn.nn.layer_steps import Update as Update
from pyg_batchgnn.nn.layer_steps import total as total
from pyg_batchgnn.nn.models import GAT as GAT
from pyg_batchgnn.nn.models import GCN as GCN
from pyg_batchgnn.nn.models import GIN as GIN
from pyg_batchgnn.nn.models import SAGE as SAGE
from pyg_batchgnn.nn.models import ModelOutput as ModelOutput
from pyg_batchgnn.nn.models import NativeModel as NativeModel
from pyg_batchgnn.nn.models import TypedModel as TypedModel
from pyg_batchgnn.nn.models import to_hetero as to_hetero
from pyg_batchgnn.nn.modules import BatchNorm as BatchNorm
from pyg_batchgnn.nn.modules import Dropout as Dropout
from pyg_batchgnn.nn.modules import HeteroDictLinear as HeteroDictLinear
from pyg_batchgnn.nn.modules import Linear as Linear
from pyg_batchgnn.nn.modules import ProductChoice as ProductChoice
from pyg_batchgnn.nn.modules import ReLU as ReLU
from pyg_batchgnn.nn.modules import default_products as default_products
from pyg_batchgnn.nn.modules import is_watched as is_watched
from pyg_batchgnn.nn.modules import probe_products as probe_products
from pyg_batchgnn.nn.modules import row_norm as row_norm
from pyg_batchgnn.nn.modules import row_norm_of as row_norm_of
from pyg_batchgnn.nn.modules import use_products as use_products
from pyg_batchgnn.nn.native_conv import NativeConv as NativeConv
from pyg_batchgnn.nn.native_conv import as_made as as_made
from pyg_batchgnn.nn.native_conv import fits_bias as fits_bias
from pyg_batchgnn.nn.native_conv import layer_name as layer_name
from pyg_batchgnn.nn.sage import GraphConv as GraphConv
from pyg_batchgnn.nn.sage import SAGEConv as SAGEConv
from pyg_batchgnn.nn.transformer import TransformerConv as TransformerConv
from pyg_batchgnn.ops import current_products as current_products
from pyg_batchgnn.types import OwnedNodes as OwnedNodes
from pyg_batchgnn.types import SampledMinibatch as SampledMinibatch

#: Other names of a minibatch.
SampledBatch = TypedBatch = SampledMinibatch
