"""The samplers, which choose the edges of each minibatch, and the types of minibatches."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.ops import keyed_permutation, minibatch_key
    from pyg_batchgnn.sample.attribute_rows import AttributeRows, Placement
    from pyg_batchgnn.sample.batch_edges import HandedOut, handed_out, remember
    from pyg_batchgnn.sample.link_seeds import (
        LinkFinder,
        Links,
        LinkSeeder,
        LinkStart,
        LocalFinder,
        SeedEdges,
        links_key,
        named_relation,
    )
    from pyg_batchgnn.sample.macrobatch import (
        HGTSampler,
        MacrobatchSampler,
        MacrobatchSeeds,
        MinibatchPlan,
        Sampler,
    )
    from pyg_batchgnn.sample.minibatch import Minibatch, MinibatchLayer
    from pyg_batchgnn.sample.negatives import (
        GivenNegatives,
        LateNegatives,
        NegativeMode,
        NegativePlan,
        Negatives,
        check_early_links,
        draw_negatives,
        negative_key,
        negative_plan,
    )
    from pyg_batchgnn.sample.node_pool import ExistingPairs, NodePool
    from pyg_batchgnn.sample.on_disk import DiskSampler
    from pyg_batchgnn.sample.partitioned import PartitionedSampler, RelayPart
    from pyg_batchgnn.sample.plan import (
        LABOR,
        NEIGHBOR_CAP,
        Direction,
        HGTPlan,
        NeighborChoice,
        Replacement,
        SamplingPlan,
        Subgraph,
        TemporalStrategy,
        as_integer,
        fanouts_by_relation,
        subgraph_of,
        taken_probability,
    )
    from pyg_batchgnn.sample.pyg_output import (
        LinkInfo,
        Names,
        PygForm,
        PygOutput,
        SampleInfo,
        SeedInfo,
        put_entry,
    )
    from pyg_batchgnn.sample.pyg_samplers import (
        LinkRules,
        PygHGTSampler,
        PygLinkSampler,
        PygNeighborSampler,
        PygNodeSampler,
    )
    from pyg_batchgnn.sample.rank_finder import RankFinder, RankPlan, RankPlanner
    from pyg_batchgnn.sample.seeds import ExcludedPairs, Seeds, seeds_key
    from pyg_batchgnn.types import (
        LabelledLinks,
        Layout,
        SampledEdges,
        SampledLinks,
        SampledMinibatch,
        SampledNodes,
        TripletLinks,
    )
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "LABOR",
    "NEIGHBOR_CAP",
    "AttributeRows",
    "Direction",
    "DiskSampler",
    "ExcludedPairs",
    "ExistingPairs",
    "GivenNegatives",
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
    "subgraph_of",
    "taken_probability",
]
