"""PyG models and users' own made fast: native layers, and the rows that are needed."""

from pyg_batchgnn.port.layerwise import inference as inference
from pyg_batchgnn.port.replace import accelerate as accelerate
from pyg_batchgnn.port.report import AccelerationReport as AccelerationReport
from pyg_batchgnn.port.report import CallReport as CallReport
from pyg_batchgnn.port.report import ForwardReport as ForwardReport
from pyg_batchgnn.port.report import NotReplaced as NotReplaced
from pyg_batchgnn.port.report import Replaced as Replaced
from pyg_batchgnn.port.report import log_report as log_report
from pyg_batchgnn.port.traced import encode_once as encode_once
from pyg_batchgnn.port.traced import encoded_rows as encoded_rows
