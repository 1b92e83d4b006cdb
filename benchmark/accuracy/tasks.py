"""The tasks of the comparison: the data, the model and the length of training.

Imports nothing beside the standard library, so that every interpreter that takes part can read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

Relation = tuple[str, str, str]

SIDES = ("reference", "ours", "pyg", "native", "native-bfloat16")
#: What is compared: the first side's result minus the second's.
PAIRS = (("ours", "reference"), ("ours", "pyg"), ("native", "ours"), ("native-bfloat16", "native"))


@dataclass(frozen=True, kw_only=True)
class AccuracyTask:
    """The training that the sides of a comparison have in common.

    Attributes:
        allowed_loss: the points by which the lower bound may lie below zero.
        unmeasured: the first epochs, after which nothing is measured.
        sides: those that take part.
        seeds: the number of paired seeds.
        metric: what is measured on validation and test data.
    """

    epochs: int
    batch_size: int
    allowed_loss: float = 0.5
    unmeasured: int = 0
    fanouts: tuple[int, ...] = (15, 10)
    hidden: int = 64
    replace: bool = False
    sides: ClassVar[tuple[str, ...]] = ("ours", "native")
    seeds: ClassVar[int] = 5
    metric: ClassVar[str] = "accuracy"


@dataclass(frozen=True, kw_only=True)
class PlainTask(AccuracyTask):
    """Classes of the nodes of a homogeneous graph, by SAGE; the name of the task is the graph's.

    Attributes:
        features: the columns that features are projected to.
    """

    features: int = 256
    sides = SIDES
    seeds = 20


@dataclass(frozen=True, kw_only=True)
class TypedTask(AccuracyTask):
    """Classes of the nodes of a type, by a model with a convolution per relation.

    Attributes:
        dataset: as `pyg_batchgnn.data.load_dataset` takes it.
        node_type: the type.
        model: ``sage`` or ``gat``.
        dropout: between layers. The two sides draw it independently.
    """

    dataset: str
    node_type: str
    model: str
    dropout: float = 0.5


@dataclass(frozen=True, kw_only=True)
class LinkTask(AccuracyTask):
    """Links of a relation, by dot products of SAGE's rows.

    Attributes:
        dataset: as `pyg_batchgnn.data.load_dataset` takes it, with links held out.
        relation: the relation.
        reverse: the relation that has the same edges the other way.
        links: the number of training links that are taken.
        negatives: the number of other targets that a link is ranked among.
    """

    dataset: str
    relation: Relation
    reverse: Relation
    links: int
    negatives: int = 100
    model: str = field(default="sage", init=False)
    metric = "MRR"


_WORDS = "oewn_hetero:feature_dim=64"
_DENSE = "generated-typed:papers=16000,degree=8,classes=8,features=4"
_SPARSE = "generated-typed:papers=24000,degree=3,classes=16,features=6,seed=1"
_PAGES: Relation = ("node", "to", "node")


def _typed(name: str, dataset: str, node_type: str, **options: Any) -> dict[str, AccuracyTask]:
    """Returns the tasks of SAGE and GAT on a typed graph; ``options`` are those of both."""
    return {
        f"{name}-{model}": TypedTask(dataset=dataset, node_type=node_type, model=model, hidden=32, **options)
        for model in ("sage", "gat")
    }


TASKS: dict[str, AccuracyTask] = {
    "cora": PlainTask(epochs=40, batch_size=64, allowed_loss=1.0, fanouts=(15, 10, 5)),
    "amazon_photo": PlainTask(epochs=15, batch_size=512, fanouts=(15, 10, 5)),
    "coauthor_physics": PlainTask(epochs=6, batch_size=1024),
    "oewn": PlainTask(epochs=5, batch_size=1024),
    **_typed("oewn_hetero", _WORDS, "noun", epochs=4, unmeasured=3, batch_size=2048, dropout=0.0),
    "oewn_hetero-sage-dropout": TypedTask(
        dataset=_WORDS,
        node_type="noun",
        model="sage",
        epochs=8,
        unmeasured=6,
        batch_size=2048,
        hidden=32,
    ),
    **_typed("typed_dense", _DENSE, "paper", epochs=5, unmeasured=1, batch_size=1024),
    **_typed("typed_sparse", _SPARSE, "paper", epochs=5, unmeasured=1, batch_size=1024),
    "facebook_pages-links": LinkTask(
        dataset="facebook_pages:feature_dim=64,hold_out=0.02",
        relation=_PAGES,
        reverse=_PAGES,
        links=20_000,
        epochs=3,
        batch_size=1024,
    ),
    "typed_dense-links": LinkTask(
        dataset=f"{_DENSE},hold_out=0.05,links=author__writes__paper",
        relation=("author", "writes", "paper"),
        reverse=("paper", "rev_writes", "author"),
        links=10_000,
        hidden=32,
        epochs=4,
        batch_size=1024,
    ),
}
