"""The samplers, which choose the edges of each minibatch, and the types of minibatches."""

from pyg_batchgnn.ops import keyed_permutation, minibatch_key
from pyg_batchgnn.sample.macrobatch import Layout, MacrobatchSampler
from pyg_batchgnn.sample.minibatch import AttributeRows, Minibatch, Placement, SampledMinibatch
from pyg_batchgnn.sample.partitioned import PartitionedSampler
from pyg_batchgnn.sample.plan import Replacement, SamplingPlan
from pyg_batchgnn.sample.probability import taken_probability
from pyg_batchgnn.sample.pyg import PygNeighborSampler, to_sampler_output
from pyg_batchgnn.sample.sampler import MacrobatchSeeds, Sampler

__all__ = [
    "AttributeRows",
    "Layout",
    "MacrobatchSampler",
    "MacrobatchSeeds",
    "Minibatch",
    "PartitionedSampler",
    "Placement",
    "PygNeighborSampler",
    "Replacement",
    "SampledMinibatch",
    "Sampler",
    "SamplingPlan",
    "keyed_permutation",
    "minibatch_key",
    "taken_probability",
    "to_sampler_output",
]
