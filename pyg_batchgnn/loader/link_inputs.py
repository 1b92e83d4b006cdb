"""The links that a loader's minibatches begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.data import Relation
from pyg_batchgnn.loader.inputs import OwnerNodes, StepInputs
from pyg_batchgnn.loader.link_digest import links_sum
from pyg_batchgnn.loader.places import OwnPositions, Places
from pyg_batchgnn.loader.work import WorkItem
from pyg_batchgnn.ops import digest_text, minibatch_key
from pyg_batchgnn.sample import LinkInfo, Links, LinkSeeder, LinkStart, Names, NegativePlan, SampleInfo


@dataclass(frozen=True, eq=False)
class RelationLinks:
    """The input links of one relation.

    Attributes:
        relation: the relation.
        index: [2, n] int64, sources above targets, ids within their types.
        label: [n, ...], or None.
        time: [n] int64, or None.
        input_id: [n] int64; None for the positions in ``index``.
        here: the positions of the columns of ``index``; None if it has all links.
    """

    relation: Relation
    index: Tensor
    label: Tensor | None = None
    time: Tensor | None = None
    input_id: Tensor | None = None
    here: OwnPositions | None = None

    def __len__(self) -> int:
        return self.index.size(1) if self.here is None else self.here.total

    @cached_property
    def digest(self) -> str:
        """The digest of all links, those of other ranks included, in their order."""
        return digest_text(links_sum(self.index) if self.here is None else self.here.sum)

    def take(self, at: Tensor) -> Links:
        """Returns the links at some positions.

        Raises:
            IndexError: a link is an edge of another rank.
        """
        source, target = self.index[:, at if self.here is None else self.here.column(at)]
        return Links(
            self.relation,
            source,
            target,
            at if self.input_id is None else self.input_id[at],
            None if self.label is None else self.label[at],
            None if self.time is None else self.time[at],
        )


class LinkInputs:
    """The input links of a loader: those of one relation after those of the other.

    Args:
        parts: the links by relation, in the user's order. All have times or none.
        seeder: makes seeds of them.
        names: the names that the user gives.
    """

    def __init__(self, parts: Sequence[RelationLinks], seeder: LinkSeeder, names: Names) -> None:
        self.parts, self.seeder, self._names = tuple(parts), seeder, names
        self._places = Places(self.parts)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def info(self) -> SampleInfo:
        """The entries of PyG batches that are about the links."""
        plans = self.seeder.negatives
        modes = {relation: plan.mode for relation, plan in plans.items()}
        relations = [(part.relation, modes.get(part.relation)) for part in self.parts]
        return LinkInfo(relations, self.parts[0].time is not None)

    @property
    def excluding(self) -> bool:
        """True if the edges of links are excluded."""
        return self.seeder.excluded is not None

    @property
    def owned_by(self) -> list[OwnerNodes]:
        """The targets of the links."""
        return [OwnerNodes(part.relation[2], part.index[1], part.here) for part in self.parts]

    def take(self, item: WorkItem, seed: int) -> list[StepInputs]:
        """Returns the inputs of each minibatch; see `Inputs`.

        Links of one relation stay in the order of their positions.

        Raises:
            IndexError: there is no such position.
            ValueError: a negative cannot be drawn. The message names its link.
        """
        links = [self._links(step.positions) for step in item.steps]
        starts = self.seeder.start_all(links, seed, item.epoch, item.number)
        return [_inputs(*one) for one in zip(links, starts, strict=True)]

    def _links(self, positions: Tensor) -> list[Links]:
        places = self._places.within(positions)
        return [part.take(at) for part, at in zip(self.parts, places, strict=True)]

    def for_pyg(self, data: Any) -> dict[str, Any]:
        """Returns the arguments of PyG's `LinkLoader` that describe the links.

        PyG knows links of one type only. Those of several stand there under the first one's name.
        """
        first = self.parts[0]
        if any(part.here is not None for part in self.parts):  # PyG asks for their number alone
            index = torch.zeros(2, 1, dtype=torch.int64).expand(2, len(self))
        else:
            index = torch.cat([part.index for part in self.parts], dim=1)
        name = None if self._names is Names.NONE else first.relation
        is_one = len(self.parts) == 1
        return {
            "edge_label_index": index if isinstance(data, Data) else (name, index),
            "edge_label": first.label if is_one else None,
            "edge_label_time": first.time if is_one else None,
            "input_id": first.input_id if is_one else None,
        }

    def settings(self) -> dict[str, Any]:
        """Returns what tells these links from others; JSON can hold it."""
        found: dict[str, Any] = {
            "num_links": len(self),
            "links_digest": [part.digest for part in self.parts],
            "negatives": [[*relation, _settings(plan)] for relation, plan in self.seeder.negatives.items()],
        }
        if not self.seeder.schema.is_plain:
            found["relations"] = [[*part.relation, len(part)] for part in self.parts]
        if times := [part.time for part in self.parts if part.time is not None]:
            found["times_digest"] = _digest(times)
        if self.seeder.excluded is not None:
            found["excluded"] = [
                [list(one), [[list(name) for name in names] for names in pairs]]
                for one, pairs in self.seeder.excluded.relations.items()
            ]
        return found


def _inputs(links: Sequence[Links], start: LinkStart) -> StepInputs:
    ids = [one.input_id for one in links]
    input_id = ids[0] if len(ids) == 1 else torch.cat(ids)
    return StepInputs(start.seeds, input_id, None, start.links, start.internal, start.late_negatives)


def _settings(plan: NegativePlan) -> dict[str, Any]:
    """Returns what tells a plan of negatives from others; JSON can hold it."""
    weights = [pool.weight for pool in (plan.sources, plan.targets) if pool.weight is not None]
    return {
        "mode": plan.mode.value,
        "amount": plan.amount,
        "exclude_existing": plan.existing is not None,
        "weights_digest": _digest([weight.view(torch.int64) for weight in weights]) if weights else None,
    }


def _digest(parts: Sequence[Tensor]) -> str:
    return digest_text(minibatch_key(torch.cat(list(parts)).contiguous()))
