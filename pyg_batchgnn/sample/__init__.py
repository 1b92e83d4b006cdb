"""The samplers, which choose the edges of each minibatch, and the types of minibatches."""

from pyg_batchgnn.ops import keyed_permutation, minibatch_key
from pyg_batchgnn.sample.attribute_rows import AttributeRows, Placement
from pyg_batchgnn.sample.batch_edges import HandedOut, handed_out, remember
from pyg_batchgnn.sample.choice import NeighborChoice
from pyg_batchgnn.sample.existing_pairs import ExistingPairs
from pyg_batchgnn.sample.fanouts import as_integer, fanouts_by_relation
from pyg_batchgnn.sample.hgt import HGTSampler
from pyg_batchgnn.sample.hgt_plan import NEIGHBOR_CAP, HGTPlan
from pyg_batchgnn.sample.layers import MinibatchLayer
from pyg_batchgnn.sample.link_finder import LinkFinder, LocalFinder
from pyg_batchgnn.sample.link_seeds import LinkSeeder, LinkStart, links_key
from pyg_batchgnn.sample.links import LabelledLinks, Links, SampledLinks, TripletLinks
from pyg_batchgnn.sample.macrobatch import MacrobatchSampler
from pyg_batchgnn.sample.minibatch import Minibatch
from pyg_batchgnn.sample.negative_draw import draw_negatives
from pyg_batchgnn.sample.negative_pools import negative_plan
from pyg_batchgnn.sample.negatives import (
    LateNegatives,
    NegativeMode,
    NegativePlan,
    Negatives,
    check_early_links,
    negative_key,
)
from pyg_batchgnn.sample.node_pool import NodePool
from pyg_batchgnn.sample.partitioned import PartitionedSampler
from pyg_batchgnn.sample.plan import Replacement, SamplingPlan, Subgraph, TemporalStrategy
from pyg_batchgnn.sample.probability import taken_probability
from pyg_batchgnn.sample.pyg import PygLinkSampler, PygNeighborSampler
from pyg_batchgnn.sample.pyg_hgt import PygHGTSampler
from pyg_batchgnn.sample.pyg_info import SampleInfo, SeedInfo, put_entry
from pyg_batchgnn.sample.pyg_link_info import LinkInfo
from pyg_batchgnn.sample.pyg_links import LinkRules
from pyg_batchgnn.sample.pyg_nodes import PygNodeSampler
from pyg_batchgnn.sample.pyg_output import Direction, Names, PygForm, PygOutput
from pyg_batchgnn.sample.pyg_parts import PygParts
from pyg_batchgnn.sample.rank_finder import RankFinder
from pyg_batchgnn.sample.rank_plan import RankPlan, RankPlanner
from pyg_batchgnn.sample.relay_part import RelayPart
from pyg_batchgnn.sample.sampled import SampledMinibatch
from pyg_batchgnn.sample.sampled_parts import Layout, SampledEdges, SampledNodes
from pyg_batchgnn.sample.sampler import MacrobatchSeeds, MinibatchPlan, Sampler
from pyg_batchgnn.sample.seed_edges import SeedEdges, named_relation
from pyg_batchgnn.sample.seeds import ExcludedPairs, Seeds, seeds_key

__all__ = [
    "NEIGHBOR_CAP",
    "AttributeRows",
    "Direction",
    "ExcludedPairs",
    "ExistingPairs",
    "HGTPlan",
    "HGTSampler",
    "HandedOut",
    "LabelledLinks",
    "LateNegatives",
    "Layout",
    "LinkFinder",
    "LinkInfo",
    "LinkRules",
    "LinkSeeder",
    "LinkStart",
    "Links",
    "LocalFinder",
    "MacrobatchSampler",
    "MacrobatchSeeds",
    "Minibatch",
    "MinibatchLayer",
    "MinibatchPlan",
    "Names",
    "NegativeMode",
    "NegativePlan",
    "Negatives",
    "NeighborChoice",
    "NodePool",
    "PartitionedSampler",
    "Placement",
    "PygForm",
    "PygHGTSampler",
    "PygLinkSampler",
    "PygNeighborSampler",
    "PygNodeSampler",
    "PygOutput",
    "PygParts",
    "RankFinder",
    "RankPlan",
    "RankPlanner",
    "RelayPart",
    "Replacement",
    "SampleInfo",
    "SampledEdges",
    "SampledLinks",
    "SampledMinibatch",
    "SampledNodes",
    "Sampler",
    "SamplingPlan",
    "SeedEdges",
    "SeedInfo",
    "Seeds",
    "Subgraph",
    "TemporalStrategy",
    "TripletLinks",
    "as_integer",
    "check_early_links",
    "draw_negatives",
    "fanouts_by_relation",
    "handed_out",
    "keyed_permutation",
    "links_key",
    "minibatch_key",
    "named_relation",
    "negative_key",
    "negative_plan",
    "put_entry",
    "remember",
    "seeds_key",
    "taken_probability",
]
