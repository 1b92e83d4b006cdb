"""The jobs of ranks in test_rank_options.py: every option, typed or not, against one process."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import MacrobatchNeighborLoader, Minibatch
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.sample import Subgraph
from tests.support.rank_coverings import Covering, run_settings, settings_of
from tests.support.rank_epochs import OneProcess, RankEpoch, some_positions
from tests.support.rank_graphs import (
    GRAPHS,
    OPTIONS,
    SpreadGraphs,
    arguments_of,
    owners_in,
    policies,
    tables_of,
)
from tests.support.traffic import asked_nodes, remote_edges

#: The factors that one process knows too.
IN_ONE_PROCESS = ("graph", "option", "seeds", "export")


def factors(ranks: int) -> dict[str, tuple[Any, ...]]:
    """Returns the values of each factor."""
    return {
        "option": tuple(OPTIONS),
        "graph": ("typed", "plain"),
        "policy": policies(ranks),
        "hybrid": (False, True),
        # B, F and the macrobatches that are prepared ahead.
        "sizes": ((1, 1, 2), (3, 2, 0), ("all", 1, 0), ("auto", "auto", 2)),
        "seeds": ("one", "several"),
        "schedule": ("local", "balanced", "global"),
        "export": ("pyg", "native"),
    }


def allowed(setting: Mapping[str, Any]) -> bool:
    return setting.get("export") != "native" or setting.get("option") != "bidirectional"


def epochs(backend: str, patience: float, covering: Mapping[str, Any]) -> int:
    """Minibatches are those of one process, in the rounds and rows of the formulas.

    Args:
        backend: the backend of the communicator.
        patience: seconds for which a rank waits for its peers.
        covering: the fields of `Covering`.
    """
    warnings.simplefilter("ignore")  # PyG's, of relations that have no reverse
    share = Covering(**covering)
    with Communicator.create("loader", timeout=patience, backend=backend) as comm:
        check = functools.partial(_check, SpreadGraphs(comm))
        chosen = share.take(settings_of(factors(comm.size), allowed, IN_ONE_PROCESS, share.full))
        return run_settings(chosen, IN_ONE_PROCESS, _in_one_process, check)


def _arguments_of(setting: Mapping[str, Any]) -> dict[str, Any]:
    chosen = arguments_of(setting["graph"], setting["option"], setting["seeds"])
    return {**chosen, "export": setting["export"]}


def _in_one_process(setting: Mapping[str, Any]) -> OneProcess:
    arguments = _arguments_of(setting)
    loader = MacrobatchNeighborLoader(GRAPHS[setting["graph"]], **arguments, macrobatch_size=1, fetch_size=1)
    return OneProcess(loader, functools.partial(positions, nodes=arguments["input_nodes"]))


def _check(graphs: SpreadGraphs, reference: OneProcess, setting: Mapping[str, Any]) -> None:
    comm, (macrobatch, fetch, prefetch) = graphs.comm, setting["sizes"]
    loader = MacrobatchNeighborLoader(
        graphs.stores(setting["graph"], setting["policy"], setting["hybrid"]),
        **_arguments_of(setting),
        schedule=setting["schedule"],
        macrobatch_size=macrobatch,
        fetch_size=fetch,
        prefetch=prefetch,
    )
    epoch = RankEpoch.of(comm, loader, reference.positions)
    owner = _owner_of_inputs(loader, setting, comm.size)
    epoch.check(reference, setting["schedule"], owner, some_positions(loader, comm.rank))
    _check_counts(epoch, setting)


def positions(batch: Any, nodes: Any) -> Tensor:
    """Returns the positions of a batch's seeds in the loader's input, type by type."""
    if isinstance(batch, Minibatch):
        counts = [batch.nodes[number].nodes_per_hop[0] for number in batch.seed_types]
        assert batch.input_id is not None
        ids = list(batch.input_id.split(counts))
    elif isinstance(nodes, Mapping):
        ids = [batch[name].input_id for name in nodes]
    else:
        ids = [batch[nodes[0]].input_id if isinstance(nodes, tuple) else batch.input_id]
    sizes = [len(own) for own in nodes.values()] if isinstance(nodes, Mapping) else [0]
    begins = [0, *itertools.accumulate(sizes)]
    return torch.cat([own + begin for own, begin in zip(ids, begins, strict=False)])


def _owner_of_inputs(loader: Any, setting: Mapping[str, Any], ranks: int) -> list[int]:
    own, schema = owners_in(setting["graph"], setting["policy"], ranks)
    inputs = loader._parts.pipeline.inputs
    return [rank for part in inputs.parts for rank in own[schema.type_number(part.name)][part.node].tolist()]


def _check_counts(epoch: RankEpoch, setting: Mapping[str, Any]) -> None:
    """Checks rounds, and rows of native batches, whose nodes and edges are as they were sampled.

    An induced subgraph does not have the edges of its hops.
    """
    comm, loader, made, counts = epoch.comm, epoch.loader, epoch.batches, epoch.counts
    plan, sizes = loader._setup.plan, loader.sizes
    macrobatches = [made[first : first + sizes.macrobatch] for first in range(0, len(made), sizes.macrobatch)]
    groups = [list(_groups(one, sizes.fetch)) for one in macrobatches]
    assert counts[MessageKind.PARTITION].rounds == 0
    if comm.size == 1:
        return
    schedule, relayed = setting["schedule"], not setting["hybrid"]
    relays = plan.num_hops + (plan.subgraph is Subgraph.INDUCED) - (schedule == "local")
    assert counts[MessageKind.TOPOLOGY].rounds == 2 * relays * len(macrobatches) * relayed
    assert counts[MessageKind.FEATURES].rounds == 2 * sum(map(len, groups))
    assert counts[MessageKind.LOOKUP].rounds == 2 * relayed * (schedule == "global")
    own, schema = owners_in(setting["graph"], setting["policy"], comm.size)
    tables = _tables_of(setting["graph"])
    hosts = torch.tensor(comm.hosts)
    fetched = 0
    for group in itertools.chain.from_iterable(groups):
        for number, owner in enumerate(own):
            if setting["hybrid"] and not tables[schema.node_groups[number]]:
                continue  # nothing is wanted of them, as their original ids are known
            nodes = torch.cat([_nodes(batch, number) for batch in group]).unique()
            fetched += int((hosts[owner[nodes]] != comm.host).sum())
    assert loader.stats().total.rows_fetched == fetched
    if setting["export"] == "native" and plan.subgraph is not Subgraph.INDUCED:
        away = [
            [owner[nodes.node] != comm.rank for owner, nodes in zip(own, batch.nodes, strict=True)]
            for batch in made
        ]
        pairs = list(zip(made, away, strict=True))
        asked = sum(asked_nodes(plan, *pair) + remote_edges(*pair) for pair in pairs)
        answered = counts[MessageKind.TOPOLOGY].rows_sent
        everyones = comm.all_gather_json([relayed * asked, answered])
        assert sum(one for one, _ in everyones) == sum(other for _, other in everyones)


@functools.cache
def _tables_of(graph: str) -> dict[Any, dict[str, Tensor]]:
    return tables_of(GRAPHS[graph])


def _groups(macrobatch: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(macrobatch), size):
        yield macrobatch[first : first + size]


def _nodes(batch: Any, number: int) -> Tensor:
    """Returns the original ids of a batch's nodes of one type."""
    if isinstance(batch, Minibatch):
        return batch.nodes[number].node
    if hasattr(batch, "node_types"):
        ids: Tensor = batch[GRAPHS["typed"].node_types[number]].n_id
        return ids
    return torch.as_tensor(batch.n_id)
