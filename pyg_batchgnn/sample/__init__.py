"""The samplers, which choose the edges of each minibatch, and the types of minibatches."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.ops import keyed_permutation as keyed_permutation
    from pyg_batchgnn.ops import minibatch_key as minibatch_key
    from pyg_batchgnn.sample.batch_edges import ENDS as ENDS
    from pyg_batchgnn.sample.batch_edges import HandedOut as HandedOut
    from pyg_batchgnn.sample.batch_edges import handed_out as handed_out
    from pyg_batchgnn.sample.batch_edges import remember as remember
    from pyg_batchgnn.sample.link_seeds import LinkFinder as LinkFinder
    from pyg_batchgnn.sample.link_seeds import Links as Links
    from pyg_batchgnn.sample.link_seeds import LinkSeeder as LinkSeeder
    from pyg_batchgnn.sample.link_seeds import LinkStart as LinkStart
    from pyg_batchgnn.sample.link_seeds import LocalFinder as LocalFinder
    from pyg_batchgnn.sample.link_seeds import SeedEdges as SeedEdges
    from pyg_batchgnn.sample.link_seeds import links_key as links_key
    from pyg_batchgnn.sample.link_seeds import named_relation as named_relation
    from pyg_batchgnn.sample.macrobatch import HGTSampler as HGTSampler
    from pyg_batchgnn.sample.macrobatch import MacrobatchSampler as MacrobatchSampler
    from pyg_batchgnn.sample.macrobatch import MacrobatchSeeds as MacrobatchSeeds
    from pyg_batchgnn.sample.macrobatch import MinibatchPlan as MinibatchPlan
    from pyg_batchgnn.sample.macrobatch import Sampler as Sampler
    from pyg_batchgnn.sample.minibatch import AttributeRows as AttributeRows
    from pyg_batchgnn.sample.minibatch import Minibatch as Minibatch
    from pyg_batchgnn.sample.minibatch import MinibatchLayer as MinibatchLayer
    from pyg_batchgnn.sample.minibatch import Placement as Placement
    from pyg_batchgnn.sample.negatives import LateNegatives as LateNegatives
    from pyg_batchgnn.sample.negatives import NegativeDraw as NegativeDraw
    from pyg_batchgnn.sample.negatives import NegativeMode as NegativeMode
    from pyg_batchgnn.sample.negatives import NegativePlan as NegativePlan
    from pyg_batchgnn.sample.negatives import Negatives as Negatives
    from pyg_batchgnn.sample.negatives import check_early_links as check_early_links
    from pyg_batchgnn.sample.negatives import negative_key as negative_key
    from pyg_batchgnn.sample.negatives import negative_plan as negative_plan
    from pyg_batchgnn.sample.node_pool import ExistingPairs as ExistingPairs
    from pyg_batchgnn.sample.node_pool import NodePool as NodePool
    from pyg_batchgnn.sample.on_disk import DiskSampler as DiskSampler
    from pyg_batchgnn.sample.partitioned import PartitionedSampler as PartitionedSampler
    from pyg_batchgnn.sample.partitioned import RelayPart as RelayPart
    from pyg_batchgnn.sample.pyg_output import LinkInfo as LinkInfo
    from pyg_batchgnn.sample.pyg_output import Names as Names
    from pyg_batchgnn.sample.pyg_output import PygForm as PygForm
    from pyg_batchgnn.sample.pyg_output import PygOutput as PygOutput
    from pyg_batchgnn.sample.pyg_output import SampleInfo as SampleInfo
    from pyg_batchgnn.sample.pyg_output import SeedInfo as SeedInfo
    from pyg_batchgnn.sample.pyg_output import put_entry as put_entry
    from pyg_batchgnn.sample.pyg_samplers import LinkRules as LinkRules
    from pyg_batchgnn.sample.pyg_samplers import PygHGTSampler as PygHGTSampler
    from pyg_batchgnn.sample.pyg_samplers import PygLinkSampler as PygLinkSampler
    from pyg_batchgnn.sample.pyg_samplers import PygNeighborSampler as PygNeighborSampler
    from pyg_batchgnn.sample.pyg_samplers import PygNodeSampler as PygNodeSampler
    from pyg_batchgnn.sample.rank_finder import RankFinder as RankFinder
    from pyg_batchgnn.sample.rank_finder import RankPlanner as RankPlanner
    from pyg_batchgnn.sample.sampling_plan import ALL_NEIGHBORS as ALL_NEIGHBORS
    from pyg_batchgnn.sample.sampling_plan import LABOR as LABOR
    from pyg_batchgnn.sample.sampling_plan import NEIGHBOR_CAP as NEIGHBOR_CAP
    from pyg_batchgnn.sample.sampling_plan import Direction as Direction
    from pyg_batchgnn.sample.sampling_plan import HGTPlan as HGTPlan
    from pyg_batchgnn.sample.sampling_plan import NeighborChoice as NeighborChoice
    from pyg_batchgnn.sample.sampling_plan import Replacement as Replacement
    from pyg_batchgnn.sample.sampling_plan import SamplingPlan as SamplingPlan
    from pyg_batchgnn.sample.sampling_plan import Subgraph as Subgraph
    from pyg_batchgnn.sample.sampling_plan import TemporalStrategy as TemporalStrategy
    from pyg_batchgnn.sample.sampling_plan import as_integer as as_integer
    from pyg_batchgnn.sample.sampling_plan import fanouts_by_relation as fanouts_by_relation
    from pyg_batchgnn.sample.sampling_plan import subgraph_of as subgraph_of
    from pyg_batchgnn.sample.sampling_plan import taken_probability as taken_probability
    from pyg_batchgnn.sample.seeds import ExcludedPairs as ExcludedPairs
    from pyg_batchgnn.sample.seeds import Seeds as Seeds
    from pyg_batchgnn.sample.seeds import frozen as frozen
    from pyg_batchgnn.sample.seeds import seeds_key as seeds_key
    from pyg_batchgnn.sample.tokens import Tokens as Tokens
    from pyg_batchgnn.sample.tokens import TokenTimes as TokenTimes
    from pyg_batchgnn.sample.tokens import tokens_of as tokens_of
    from pyg_batchgnn.types import LabelledLinks as LabelledLinks
    from pyg_batchgnn.types import Layout as Layout
    from pyg_batchgnn.types import SampledEdges as SampledEdges
    from pyg_batchgnn.types import SampledLinks as SampledLinks
    from pyg_batchgnn.types import SampledMinibatch as SampledMinibatch
    from pyg_batchgnn.types import SampledNodes as SampledNodes
    from pyg_batchgnn.types import TripletLinks as TripletLinks
else:
    __getattr__ = late_names(__name__)
