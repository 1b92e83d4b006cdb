"""The parameters of a generated graph."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from pyg_batchgnn.data.errors import DatasetError

MAX_NODES = 2**31  # two ids make one 64-bit sort key, and ids are stored as int32


class RandomStream(enum.IntEnum):
    """The independent streams of random numbers."""

    COMMUNITIES = 1
    PERMUTATION = 2
    CLASS_MEANS = 3
    EDGES = 4
    NODES = 5
    DEGREES = 6
    SOURCES = 7
    SPLITS = 8


def _check_numbers(spec: Any) -> None:
    for field in fields(spec):
        value = getattr(spec, field.name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise DatasetError(f"generator: {field.name} is {value!r}; give a finite number")
        if field.type == "int" and not isinstance(value, int):
            raise DatasetError(f"generator: {field.name} is {value!r}; give a whole number")


def _check_bounds(spec: Any, bounds: Mapping[str, tuple[float, float]]) -> None:
    for name, (low, high) in bounds.items():
        value = getattr(spec, name)
        if not low <= value <= high:
            raise DatasetError(f"generator: {name} is {value}; give a value from {low} to {high}")


@dataclass(frozen=True)
class GeneratorSpec:
    """The parameters of a generated graph. Equal parameters give equal bytes.

    Attributes:
        nodes: number of nodes N, from 4 a class up to 2^31.
        seed: seed of every random choice.
        degree: mean number of neighbours aimed at; merging parallel edges loses about a tenth of
            it.
        classes, features: number of classes C, and of feature columns F.
        exponent: exponent of the power law of degrees, above 2.
        signal: distance of a class's mean feature vector from the origin, in standard deviations of
            the noise.
        label_noise: share of nodes whose label is replaced by a random class: a ceiling on any
            accuracy.
        train, val, test: share of nodes in each split.
        half: 1 stores features as float16, 0 as float32.
    """

    nodes: int = 100_000
    seed: int = 0
    degree: float = 16.0
    classes: int = 16
    features: int = 64
    exponent: float = 2.5
    signal: float = 1.5
    label_noise: float = 0.05
    train: float = 0.6
    val: float = 0.2
    test: float = 0.2
    half: int = 0

    def __post_init__(self) -> None:
        _check_numbers(self)
        bounds = {
            "classes": (1, 1 << 20),
            "nodes": (4 * self.classes, MAX_NODES),
            "seed": (0, 2**63 - 1),
            "degree": (0.0, 1000.0),
            "features": (1, 1 << 16),
            "exponent": (2.05, 10.0),
            "signal": (0.0, 1e4),
            "label_noise": (0.0, 1.0),
            "train": (0.0, 1.0),
            "val": (0.0, 1.0),
            "test": (0.0, 1.0),
            "half": (0, 1),
        }
        _check_bounds(self, bounds)
        share = self.train + self.val + self.test
        if share > 1.0 + 1e-9:
            raise DatasetError(
                f"generator: train + val + test is {share:g}; give shares that add up to at most 1"
            )

    @property
    def name(self) -> str:
        """The graph's name for `load_dataset`: only what differs from the defaults."""
        return "generated:" + _changes(self, GeneratorSpec())

    @property
    def source(self) -> str:
        """The sentence that says where such a data set comes from."""
        return (
            f"Power-law graph with nested communities made by this package's generator "
            f"({self.name.removeprefix('generated:')}); not real data."
        )

    @property
    def feature_dtype(self) -> type:
        """NumPy's type of the stored features."""
        return np.float16 if self.half else np.float32

    @property
    def estimated_bytes(self) -> int:
        """The approximate size of the finished arrays."""
        edges = int(self.nodes * self.degree) * 8
        feature = np.dtype(self.feature_dtype).itemsize * self.features
        return edges + self.nodes * (feature + 16)

    def random(self, stream: RandomStream, block: int = 0) -> np.random.Generator:
        """Returns random numbers of one stream and block, whatever the order of blocks."""
        return np.random.default_rng([self.seed, int(stream), block])


def _changes(spec: Any, default: Any) -> str:
    """Returns the first two fields, and those that differ from the defaults."""
    parts = [f"{field.name}={getattr(spec, field.name)}" for field in fields(spec)[:2]]
    for field in fields(spec)[2:]:
        value = getattr(spec, field.name)
        if value != getattr(default, field.name):
            parts.append(f"{field.name}={value}")
    return ",".join(parts)


@dataclass(frozen=True)
class TypedGeneratorSpec:
    """The parameters of a generated graph of several types. Equal parameters give equal bytes.

    Papers have features "x", class numbers "y" and a "time"; authors have three labels "y" each;
    fields and institutions have no attributes. Edges of "cites" have the "time" of the citing
    paper. Papers and authors have splits.

    Attributes:
        papers: number of papers; there are as many authors, and fewer fields and institutions.
        seed: seed of every random choice.
        degree: mean number of papers that a paper cites, before repeats.
        classes: number of classes of papers.
        features: number of feature columns of papers.
    """

    papers: int = 10_000
    seed: int = 0
    degree: float = 8.0
    classes: int = 8
    features: int = 32

    def __post_init__(self) -> None:
        _check_numbers(self)
        bounds = {
            "papers": (1, 1 << 30),
            "seed": (0, 2**63 - 1),
            "degree": (0.0, 1000.0),
            "classes": (1, 1 << 20),
            "features": (1, 1 << 16),
        }
        _check_bounds(self, bounds)

    @property
    def num_nodes(self) -> dict[str, int]:
        """The number of nodes of each type."""
        few = {"field": max(self.papers // 16, 1), "institution": max(self.papers // 64, 1)}
        return {"author": self.papers, **few, "paper": self.papers}

    @property
    def name(self) -> str:
        """The graph's name for `load_dataset`."""
        fields = (f"{field.name}={getattr(self, field.name)}" for field in dataclasses.fields(self))
        return "generated-typed:" + ",".join(fields)

    @property
    def source(self) -> str:
        """The sentence that says where such a data set comes from."""
        return f"Typed graph made by this package's generator ({self.name}); not real data."

    @property
    def estimated_bytes(self) -> int:
        """The approximate size of the finished arrays."""
        return int(self.papers * (4 * self.features + 8 * (2 * self.degree + 2 * 8) + 64))


#: What papers100M has: nodes, and those of its splits.
_PAPERS, _PAPERS_SPLITS = 111_059_956, {"train": 1_207_179, "val": 125_265, "test": 214_338}
#: A node has at most this many in-edges.
_MOST_IN_EDGES = 1 << 17


@dataclass(frozen=True)
class PapersSpec:
    """The parameters of a generated graph in the shape of papers100M. Equal parameters give equal
    bytes.

    Features are bfloat16, labels are narrow integers, and edges lie by destination, without ids
    and without an order among the in-edges of a node. Self loops and parallel edges occur.

    In-degrees: a node has at least k in-edges with probability (1 + k / s)^-tail, and none has more
    than 131,072; s gives the mean `degree`. With the defaults s is 7.55: 17 % of the nodes have no
    in-edge, 47 % at most three, 0.7 % more than 200.

    Sources: nodes have ranks. A source has a rank below r with probability (r / N)^(1 / skew).
    With a skew of 2 the first hundredth of the ranks is a tenth of all sources, the first rank of
    1.6 G edges is 150,000 of them, and out-degrees have a power law of exponent 3. Ranks are
    scattered over the ids by a random permutation.

    Classes: the class of rank r is r modulo `classes`. A share `homophily` of the sources is moved
    to the nearest rank of the target's class. Features are the mean of the node's class plus
    uniform noise of variance 1 a column.

    Attributes:
        nodes: number of nodes N, from 4 a class up to 2^31.
        seed: seed of every random choice.
        degree: mean number of in-edges.
        tail: exponent of the law of in-degrees, above 1.
        skew: whole exponent of the law of sources; 1 makes all nodes equally likely.
        classes: number of classes.
        features: number of feature columns.
        signal: length of a class's mean feature vector, in standard deviations of the noise.
        homophily: share of the sources that have the class of their target on purpose.
    """

    nodes: int = _PAPERS
    seed: int = 0
    degree: float = 14.5
    tail: float = 1.5
    skew: int = 2
    classes: int = 172
    features: int = 128
    signal: float = 2.5
    homophily: float = 0.5

    def __post_init__(self) -> None:
        _check_numbers(self)
        bounds = {
            "classes": (1, 1 << 15),
            "nodes": (max(4 * self.classes, 128), MAX_NODES),
            "seed": (0, 2**63 - 1),
            "degree": (0.01, 100.0),
            "tail": (1.05, 10.0),
            "skew": (1, 8),
            "features": (1, 1 << 14),
            "signal": (0.0, 1e4),
            "homophily": (0.0, 1.0),
        }
        _check_bounds(self, bounds)

    @property
    def name(self) -> str:
        """The graph's name for `load_dataset`: only what differs from the defaults."""
        return "papers-like:" + _changes(self, PapersSpec())

    @property
    def source(self) -> str:
        """The sentence that says where such a data set comes from."""
        return (
            f"Graph in the shape of papers100M made by this package's generator "
            f"({self.name.removeprefix('papers-like:')}); not real data."
        )

    @property
    def splits(self) -> dict[str, int]:
        """The number of nodes of each split, scaled as those of papers100M."""
        return {name: max(1, round(self.nodes * count / _PAPERS)) for name, count in _PAPERS_SPLITS.items()}

    @property
    def most_in_edges(self) -> int:
        """No node has more in-edges."""
        return min(_MOST_IN_EDGES, self.nodes)

    @property
    def label_dtype(self) -> type:
        """NumPy's type of the stored labels."""
        return np.uint8 if self.classes <= 256 else np.int16

    @property
    def estimated_bytes(self) -> int:
        """The approximate size of the finished arrays."""
        return int(self.nodes * (4 * self.degree + 8 + 2 * self.features + 2))

    def random(self, stream: RandomStream, block: int = 0) -> np.random.Generator:
        """Returns random numbers of a stream and block, whatever the order of blocks."""
        return np.random.default_rng([self.seed, int(stream), block])
