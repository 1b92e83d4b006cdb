"""The historical embeddings of a rank: its caches, and its pushes to the caches of peers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import CommError, Communicator, Header, MessageKind
from pyg_batchgnn.history.embedding_cache import EmbeddingCache, FoundRows
from pyg_batchgnn.history.halo import Halo, HaloFeatures
from pyg_batchgnn.store import DistGraphStore


@dataclass(frozen=True)
class HistoricalSettings:
    """The sizes of the caches and of the pushes (DistGNN-MB, section 3.2; defaults: section 4.4). A
    step is one minibatch of every rank. Raises TypeError or ValueError for a wrong number.
    """

    lines: int | None = 1_000_000  # the rows that each layer's cache holds (cs); None: one for each halo node
    #: a row can be read for this many steps after the one in which it was stored (ls); None:
    #: without end
    life_span: int | None = 2
    #: a rank pushes at most this many rows per step, layer and peer (nc); None: all rows that the
    #: peer has in its halo
    push: int | None = 2000
    delay: int = 1  # rows pushed in a step are stored this many steps later (d)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            optional = name != "delay"
            if value is None and optional:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an integer{' or None' * optional}, got {value!r}")
            if value < 1:
                without = "; None sets no bound" if optional else ""
                raise ValueError(f"{name} must be at least 1, got {value}{without}")


_PUSH = int.from_bytes(b"push", "little")


class HistoricalCaches:
    """Historical embeddings: rows of halo nodes that their owners pushed some steps ago
    (DistGNN-MB, section 3.2). ``loader`` takes them as ``history=``.

    There is one cache for the input of each layer. The first holds features, which are fetched
    once. In every step each rank pushes the later layers' rows of its minibatch's own nodes to the
    ranks that have them in their halo. They are stored exactly ``delay`` steps later, so that runs
    repeat bit for bit.

    Making it is collective. ``graph``: partitioned and homogeneous. ``comm``: a communicator that
    nothing else uses, as rows travel while others sample, train and exchange gradients. Raises
    NotImplementedError if the graph has types, or every rank holds the whole topology; ValueError
    if the communicator is the graph's; AgreementError if ranks have other settings.
    """

    def __init__(
        self, graph: DistGraphStore, comm: Communicator, settings: HistoricalSettings | None = None
    ) -> None:
        self.settings = settings or HistoricalSettings()
        _check(graph, comm)
        comm.check_agreement({"historical embeddings": repr(self.settings)})
        self.part, self.halo = graph.part, Halo.of(graph.part, comm)
        self.features = HaloFeatures(self.halo, self.settings.lines)
        self._comm, self._queue = comm, PushQueue(comm)
        self._caches: list[EmbeddingCache] = []
        self._stats = HistoricalStats()
        self._step, self._place = -1, (0, 0)
        self._key: int | None = None
        #: By layer and peer; like the caches they begin with the input of the second layer.
        self._pending: list[list[PushedRows]] = []
        self._is_pushed = True

    def begin_step(self, epoch: int, step: int, key: int) -> None:
        """Begins a step on every rank: stores the rows pushed ``delay`` steps ago. A loader calls
        it with the ``key`` of the minibatch that it hands out, whose rows the step pushes."""
        self._end_step()
        self._step += 1
        self._stats.steps += 1
        self._place, self._key, self._pending, self._is_pushed = (epoch, step), key, [], False
        self._receive(self._step - self.settings.delay)

    def end_epoch(self) -> None:
        """Stores all pushed rows. A loader calls it at the end of an epoch."""
        self._end_step()
        self._receive(self._step)

    def _end_step(self) -> None:
        """Pushes nothing if the model did not use the step's minibatch: peers wait for a push."""
        if not self._is_pushed:
            self.push()

    def _receive(self, step: int) -> None:
        began = time.perf_counter()
        pushed = self._queue.sent_until(step)
        self._stats.waited_seconds += time.perf_counter() - began
        for layer in range(max(map(len, pushed), default=0)):
            given = [one[layer] for one in pushed if len(one) > layer and one[layer].node.numel()]
            if given:
                node, rows = torch.cat([one.node for one in given]), torch.cat([one.rows for one in given])
                self._cache(layer + 1).store(node, rows, self._step)

    def search_features(self, number: Tensor) -> FoundRows:
        """Finds the features (layer 0) of halo nodes. ``number``: [n] int64, their positions among
        the halo nodes of the part."""
        return self._counted(0, number, self.features.search(number))

    def search(self, layer: int, node: Tensor) -> FoundRows:
        """Finds cached rows of halo nodes. ``layer``: the layer whose results they are, from 1 at
        the input. ``node``: [n] int64 original ids."""
        return self._counted(layer, node, self._cache(layer).search(node, self._step))

    def load(self, layer: int, found: FoundRows) -> Tensor:
        """Returns [f, F], the rows that a search found; layer 0 has the features."""
        return self._cache(layer).load(found) if layer else self.features.load(found)

    def _counted(self, layer: int, searched: Tensor, found: FoundRows) -> FoundRows:
        counts = self._stats.layer(layer)
        counts.searched += searched.numel()
        counts.found += found.found
        return found

    def _cache(self, layer: int) -> EmbeddingCache:
        while len(self._caches) < layer:
            lines = self.halo.num_halo if self.settings.lines is None else self.settings.lines
            self._caches.append(EmbeddingCache(min(lines, self.halo.num_halo), self.settings.life_span))
        return self._caches[layer - 1]

    def wants_rows(self, key: int) -> bool:
        """Returns whether this is the step's minibatch, and its rows were not pushed yet."""
        return not self._is_pushed and self._comm.size > 1 and key == self._key

    def note(self, seed: int, own: Tensor, table: Tensor, row: Tensor | None) -> None:
        """Takes a layer's results that the step may push, layer by layer from 1 on. ``own``: [n]
        int64, each own node's row in the part; -1 leaves a node out. ``table``: [>= n, F], the rows
        of these nodes; or any table, with ``row`` [n], the row of each node in it."""
        layer = 1 + len(self._pending)
        name = ops.gather_rows(self.halo.original, own.clamp(min=0))
        chosen = ops.choose_pushed(self.halo.peers, own, name, self.settings.push, self._draw(seed, layer))
        place = chosen.place if row is None else ops.gather_rows(row, chosen.place)
        rows = ops.gather_rows(table.detach(), place).split(chosen.counts)
        nodes = ops.gather_rows(name, chosen.place).split(chosen.counts)
        pushed = [PushedRows(*one) for one in zip(nodes, rows, strict=True)]
        self._pending.append(pushed)
        counts = self._stats.layer(layer)
        counts.candidates += sum(chosen.candidates)
        counts.pushed += sum(chosen.counts)
        counts.pushed_bytes += sum(one.nbytes for one in pushed)

    def push(self) -> None:
        """Starts to push the rows noted in this step. Collective, but it does not wait."""
        if self._is_pushed:
            return
        self._is_pushed = True
        if self._comm.size == 1:
            return
        by_peer = [[layer[peer] for layer in self._pending] for peer in range(self._comm.size)]
        self._queue.start(self._step, Header(MessageKind.PUSH, *self._place), by_peer)
        self._pending = []

    def _draw(self, seed: int, layer: int) -> int:
        key = 0
        for word in (seed, *self._place, layer):
            key = ops.fold_key(key, word % (1 << 64))
        return ops.to_signed(ops.fold_key(key, _PUSH))

    def stats(self) -> HistoricalStats:
        """Returns the counts since the caches were made."""
        self._stats.exchange_seconds = self._comm.counters.snapshot()[MessageKind.PUSH].seconds
        self._stats.features_fetched = self.features.fetched
        self._stats.feature_bytes = self.features.fetched_bytes
        return self._stats

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the caches and the rows under way to them, as tensors by name. Features are left
        out, as a loader fetches them again. Collective: all ranks call it between the same two
        steps."""
        self._end_step()
        state = {"step": torch.tensor(self._step)}
        for layer, cache in enumerate(self._caches, 1):
            state |= {f"cache {layer} {name}": rows for name, rows in cache.state_dict().items()}
        for number, push in enumerate(self._queue.arrived()):
            state[f"push {number} step"] = torch.tensor(push.step)
            state |= {f"push {number} rank {rank}": one for rank, one in enumerate(push.wait())}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a `state_dict` of the same rank and graph. Raises ValueError for another
        state."""
        try:
            self._load(state)
        except (KeyError, IndexError, RuntimeError, ValueError) as error:
            raise ValueError(f"not a state of these caches: {error!r}; resume with the same ranks") from error

    def _load(self, state: Mapping[str, Tensor]) -> None:
        self._step, self._is_pushed, self._caches = int(state["step"]), True, []
        while f"cache {len(self._caches) + 1} node" in state:
            layer = len(self._caches) + 1
            rows = {name: state[f"cache {layer} {name}"] for name in ("node", "step", "rows")}
            self._cache(layer).load_state_dict(rows)
        pushes, number = [], 0
        while f"push {number} step" in state:
            messages = [state[f"push {number} rank {rank}"] for rank in range(self._comm.size)]
            pushes.append(_arrived(int(state[f"push {number} step"]), messages))
            number += 1
        self._queue.restore(pushes)

    def count_edges(self, layer: int, edges: int, left_out: int) -> None:
        """Counts edges of a layer, and how many of them were left out."""
        counts = self._stats.layer(layer)
        counts.edges += edges
        counts.edges_left_out += left_out


def _check(graph: DistGraphStore, comm: Communicator) -> None:
    if graph.part.schema.has_names:
        raise NotImplementedError(
            f"historical embeddings are for homogeneous graphs, but this one has the node types "
            f"{list(graph.part.schema.node_types)}: rows of several widths and relations are not pushed; "
            f"train it in the exact mode"
        )
    if graph.topology is not None:
        raise NotImplementedError(
            "historical embeddings sample within a part and its halo, but this rank holds the whole "
            "topology; make the DistGraphStore without it"
        )
    if graph.comm is comm:
        raise ValueError(
            "the communicator is that of the graph; rows are pushed while loaders sample: make another one "
            "with Communicator.create"
        )


@dataclass
class LayerCounts:
    """The counts of one layer's cache, and of the rows pushed for it."""

    searched: int = 0  # halo nodes that a minibatch needed rows of
    found: int = 0  # those that the cache had
    edges: int = 0  # edges into own nodes that were sampled
    edges_left_out: int = 0  # those whose source had no row
    candidates: int = 0  # rows that peers have in their halo, before the choice
    pushed: int = 0  # rows that were pushed
    pushed_bytes: int = 0  # their bytes, original ids included

    @property
    def hit_rate(self) -> float:
        """The share of the searched nodes that were found; 1 if none was searched."""
        return self.found / self.searched if self.searched else 1.0


@dataclass
class HistoricalStats:
    """The counts of a rank since its caches were made."""

    #: the counts of each layer's input rows; the first are the features
    layers: list[LayerCounts] = field(default_factory=list)
    steps: int = 0  # steps that have begun
    features_fetched: int = 0  # rows of features that came from other hosts, once
    feature_bytes: int = 0  # their bytes, ids included
    exchange_seconds: float = 0.0  # seconds in which rows were exchanged, hidden or not
    waited_seconds: float = 0.0  # those in which training waited for rows

    def layer(self, number: int) -> LayerCounts:
        """Returns the counts of the input of layer ``number``, from 0."""
        while len(self.layers) <= number:
            self.layers.append(LayerCounts())
        return self.layers[number]


def hit_rates(stats: Sequence[HistoricalStats]) -> list[float]:
    """Returns each layer's hit rate over the ranks together."""
    layers = max((len(one.layers) for one in stats), default=0)
    searched = [sum(one.layer(at).searched for one in stats) for at in range(layers)]
    found = [sum(one.layer(at).found for one in stats) for at in range(layers)]
    return [hits / all_ if all_ else 1.0 for hits, all_ in zip(found, searched, strict=True)]


@dataclass(frozen=True, eq=False)
class UnderWay:
    """A step's pushes to this rank that may not have arrived."""

    step: int  # the number of the step
    wait: Callable[[], list[Tensor]]  # waits for the rows and returns the bytes of each rank


class PushQueue:
    """The pushes of the latest steps, in order."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._queue: deque[UnderWay] = deque()

    def start(self, step: int, header: Header, rows: list[list[PushedRows]]) -> None:
        """Starts to push rows, by peer and layer. Collective, one round."""
        messages = [encode(layers) for layers in rows]
        items = [sum(one.node.numel() for one in layers) for layers in rows]
        handle = self._comm.start_exchange(messages, None, header, items=items)
        nothing = torch.empty(0, dtype=torch.uint8)
        wait = lambda: [one if one.numel() else nothing for one in handle.wait().split()]  # noqa: E731
        self._queue.append(UnderWay(step, wait))

    def sent_until(self, step: int) -> list[list[PushedRows]]:
        """Waits for the pushes up to a step; removes and returns them, by push and layer."""
        found = []
        while self._queue and self._queue[0].step <= step:
            for rank, message in enumerate(self._queue.popleft().wait()):
                try:
                    found.append(decode(message))
                except ValueError as error:
                    fact = f"rank {rank} pushed rows that cannot be read: {error}"
                    text = f"{fact}; every rank must have the same release"
                    raise self._comm.fail(CommError(text, [rank])) from error
        return found

    def arrived(self) -> list[UnderWay]:
        """Waits for all pushes under way; returns and keeps them."""
        self.restore([_arrived(push.step, push.wait()) for push in self._queue])
        return list(self._queue)

    def restore(self, pushes: list[UnderWay]) -> None:
        self._queue = deque(pushes)


def _arrived(step: int, messages: list[Tensor]) -> UnderWay:
    return UnderWay(step, lambda: messages)


# The message in which a rank pushes rows to a peer is a list of bytes. It begins with numbers of 64
# bits: the number of layers, and for each layer the number of rows, their columns and the code of
# their type. The original ids of all layers follow, then the rows of each layer, filled up to a
# multiple of eight bytes. A message without rows is empty.

_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_WORD = 8


@dataclass(frozen=True, eq=False)
class PushedRows:
    """Pushed rows of one layer."""

    node: Tensor  # [n] int64 original ids
    rows: Tensor  # [n, F]

    @property
    def nbytes(self) -> int:
        """The bytes of ids and rows."""
        return self.node.nbytes + self.rows.nbytes


def encode(layers: Sequence[PushedRows]) -> Tensor:
    """Returns a message [bytes] uint8 with the rows of all layers; `decode` reads it."""
    if not any(one.node.numel() for one in layers):
        return torch.empty(0, dtype=torch.uint8)
    shapes = [(one.node.numel(), one.rows.size(1), _TYPES.index(one.rows.dtype)) for one in layers]
    numbers = torch.tensor([len(layers), *(number for shape in shapes for number in shape)])
    pieces = [numbers, *(one.node for one in layers)]
    for one in layers:
        pieces += [one.rows.flatten(), torch.zeros(-one.rows.nbytes % _WORD, dtype=torch.uint8)]
    return torch.cat([piece.view(torch.uint8) for piece in pieces])


def decode(message: Tensor) -> list[PushedRows]:
    """Returns the rows of each layer, as views of a message [bytes] uint8, whose address must be a
    multiple of eight. Raises `ValueError` if it is not a message."""
    if not message.numel():
        return []
    layers = int(message[:_WORD].view(torch.int64)) if message.numel() >= _WORD else 0
    head = _WORD * (1 + 3 * layers)
    if layers < 1 or head > message.numel():
        raise ValueError(f"{message.numel()} bytes cannot hold rows of {layers} layers")
    shapes = message[_WORD:head].view(torch.int64).view(layers, 3).tolist()
    for count, columns, code in shapes:
        if count < 0 or columns < 0 or not 0 <= code < len(_TYPES):
            raise ValueError(f"{count} rows of {columns} columns of type {code} cannot be")
    bytes_of_rows = [count * columns * _TYPES[code].itemsize for count, columns, code in shapes]
    sizes = [_WORD * count for count, _, _ in shapes] + [-(-size // _WORD) * _WORD for size in bytes_of_rows]
    if head + sum(sizes) != message.numel():
        raise ValueError(f"{head + sum(sizes)} bytes are promised, {message.numel()} came")
    pieces = message[head:].split(sizes)
    return [
        PushedRows(node.view(torch.int64), rows[:size].view(_TYPES[code]).view(count, columns))
        for node, rows, size, (count, columns, code) in zip(
            pieces[:layers], pieces[layers:], bytes_of_rows, shapes, strict=True
        )
    ]
