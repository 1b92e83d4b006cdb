"""The parameters of a generated graph."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from pyg_batchgnn.data.errors import DatasetError
from pyg_batchgnn.types import HOMOGENEOUS, Relation, Schema

MAX_NODES = 2**31  # two ids make one 64-bit sort key, and ids are stored as int32


class RandomStream(enum.IntEnum):
    COMMUNITIES = 1
    PERMUTATION = 2
    CLASS_MEANS = 3
    EDGES = 4
    NODES = 5
    DEGREES = 6
    SOURCES = 7
    SPLITS = 8


class GraphSpec:
    """The base of the parameters of generated graphs."""

    KIND: ClassVar[str]  # the name for `load_dataset`, before the colon
    ABOUT: ClassVar[str]  # such a graph, as the subject of a sentence
    ORIGIN: ClassVar[str]  # the name of the parameters in META.json
    #: of the order of random numbers; folders of another version are not reused
    VERSION: ClassVar[int] = 1

    def _check(self: Any, bounds: Mapping[str, tuple[float, float]]) -> None:
        """Raises `DatasetError` unless all fields are numbers within their bounds."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise DatasetError(f"generator: {field.name} is {value!r}; give a finite number")
            if field.type == "int" and not isinstance(value, int):
                raise DatasetError(f"generator: {field.name} is {value!r}; give a whole number")
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise DatasetError(f"generator: {name} is {value}; give a value from {low} to {high}")

    @property
    def name(self: Any) -> str:
        """The name for `load_dataset`: the first two fields, and all that are not defaults."""
        default = type(self)()
        changes = [
            f"{field.name}={getattr(self, field.name)}"
            for number, field in enumerate(fields(self))
            if number < 2 or getattr(self, field.name) != getattr(default, field.name)
        ]
        return f"{self.KIND}:{','.join(changes)}"

    @property
    def source(self) -> str:
        """A sentence that says how the data set was made."""
        said = self.name.removeprefix(f"{self.KIND}:")
        return f"{self.ABOUT} made by this package's generator ({said}); not real data."

    @property
    def origin(self: Any) -> dict[str, Any]:
        """What META.json says about how the folder was made."""
        return {self.ORIGIN: asdict(self), "generator_version": self.VERSION}

    @property
    def schema(self) -> Schema:
        return HOMOGENEOUS

    @property
    def num_nodes(self: Any) -> dict[str, int]:
        """The number of nodes by type."""
        return {"node": self.nodes}

    @property
    def num_classes(self: Any) -> dict[str, int]:
        """The number of classes by type; 0 without classes."""
        return {"node": self.classes}

    @property
    def estimated_bytes(self) -> int:
        """The approximate size of the finished arrays."""
        raise NotImplementedError

    def random(self: Any, stream: RandomStream, block: int = 0) -> np.random.Generator:
        """Returns the generator of one stream and block: blocks can be drawn in any order."""
        return np.random.default_rng([self.seed, int(stream), block])


@dataclass(frozen=True)
class GeneratorSpec(GraphSpec):
    """The parameters of a generated graph. Equal parameters give equal bytes. Raises `DatasetError`
    for a value out of bounds.

    >>> generate(GeneratorSpec(nodes=1_000, classes=4)).num_nodes
    1000
    """

    KIND = "generated"
    ABOUT = "Power-law graph with nested communities"
    ORIGIN = "generator"

    nodes: int = 100_000  # number of nodes N, from 4 per class up to 2^31
    seed: int = 0  # seed of every random choice
    degree: float = 16.0  # mean number of neighbours aimed at; merging parallel edges loses about a tenth
    classes: int = 16  # number of classes C
    features: int = 64  # number of feature columns F
    exponent: float = 2.5  # exponent of the power law of degrees, above 2
    signal: float = 1.5  # length of a class's mean feature vector, in standard deviations of the noise
    label_noise: float = 0.05  # share of nodes with a random class as label: a ceiling on any accuracy
    train: float = 0.6  # share of nodes for training
    val: float = 0.2  # share of nodes for validation
    test: float = 0.2  # share of nodes for the test
    half: int = 0  # 1 stores features as float16, 0 as float32

    def __post_init__(self) -> None:
        bounds = {
            "classes": (1, 1 << 20),
            "nodes": (4 * self.classes, MAX_NODES),
            "seed": (0, 2**63 - 1),
            "degree": (0.0, 1000.0),
            "features": (1, 1 << 16),
            "exponent": (2.05, 10.0),
            "signal": (0.0, 1e4),
            **dict.fromkeys(("label_noise", "train", "val", "test"), (0.0, 1.0)),
            "half": (0, 1),
        }
        self._check(bounds)
        share = self.train + self.val + self.test
        if share > 1.0 + 1e-9:
            raise DatasetError(
                f"generator: train + val + test is {share:g}; give shares that add up to at most 1"
            )

    @property
    def feature_dtype(self) -> type:
        """NumPy's dtype of the features."""
        return np.float16 if self.half else np.float32

    @property
    def estimated_bytes(self) -> int:
        edges = int(self.nodes * self.degree) * 8
        feature = np.dtype(self.feature_dtype).itemsize * self.features
        return edges + self.nodes * (feature + 16)


#: The relations that are drawn, with the mean number of edges per node of the source type; None: as
#: in the parameters.
DRAWN: dict[Relation, float | None] = {
    ("paper", "cites", "paper"): None,  # of the spec
    ("paper", "has_topic", "field"): 4.0,
    ("paper", "rev_writes", "author"): 3.0,
    ("author", "affiliated_with", "institution"): 1.0,
}
#: The relations that are reverses of drawn ones.
REVERSED: dict[Relation, Relation] = {
    ("author", "writes", "paper"): ("paper", "rev_writes", "author"),
    ("field", "rev_has_topic", "paper"): ("paper", "has_topic", "field"),
    ("institution", "rev_affiliated_with", "author"): ("author", "affiliated_with", "institution"),
}
TYPED_SCHEMA = Schema(("author", "field", "institution", "paper"), tuple(sorted({**DRAWN, **REVERSED})))


@dataclass(frozen=True)
class TypedGeneratorSpec(GraphSpec):
    """The parameters of a generated graph of several node types. Equal parameters give equal bytes.
    Raises `DatasetError` for a value out of bounds.

    Papers have features "x", class numbers "y" and a "time"; authors have three labels "y" each;
    fields and institutions have no attributes. Edges of "cites" have the "time" of the citing
    paper. Papers and authors have splits.
    """

    KIND = "generated-typed"
    ABOUT = "Typed graph"
    ORIGIN = "typed_generator"

    papers: int = 10_000  # number of papers; there are as many authors, and fewer fields and institutions
    seed: int = 0  # seed of every random choice
    degree: float = 8.0  # mean number of papers that a paper cites, before repeats
    classes: int = 8  # number of classes of papers
    features: int = 32  # number of feature columns of papers

    def __post_init__(self) -> None:
        bounds = {
            "papers": (1, 1 << 30),
            "seed": (0, 2**63 - 1),
            "degree": (0.0, 1000.0),
            "classes": (1, 1 << 20),
            "features": (1, 1 << 16),
        }
        self._check(bounds)

    @property
    def schema(self) -> Schema:
        return TYPED_SCHEMA

    @property
    def num_nodes(self) -> dict[str, int]:
        few = {"field": max(self.papers // 16, 1), "institution": max(self.papers // 64, 1)}
        return {"author": self.papers, **few, "paper": self.papers}

    @property
    def num_classes(self) -> dict[str, int]:
        return {**dict.fromkeys(TYPED_SCHEMA.node_types, 0), "paper": self.classes}

    @property
    def name(self) -> str:
        """The name for `load_dataset`: all fields."""
        return f"{self.KIND}:{','.join(f'{key}={value}' for key, value in asdict(self).items())}"

    @property
    def estimated_bytes(self) -> int:
        return int(self.papers * (4 * self.features + 8 * (2 * self.degree + 2 * 8) + 64))


#: The nodes of papers100M, and of its splits.
_PAPERS, _PAPERS_SPLITS = 111_059_956, {"train": 1_207_179, "val": 125_265, "test": 214_338}
_MOST_IN_EDGES = 1 << 17  # the most in-edges of a node


@dataclass(frozen=True)
class PapersSpec(GraphSpec):
    """The parameters of a generated graph in the shape of papers100M. Equal parameters give equal
    bytes. Raises `DatasetError` for a value out of bounds.

    Features are bfloat16, labels are narrow integers, and edges lie by destination, without ids and
    without an order among the in-edges of a node. Self loops and parallel edges occur.

    In-degrees: a node has at least k in-edges with probability (1 + k / s)^-tail, and at most
    131,072. s makes the mean `degree`; with the defaults it is 7.55: 17 % of the nodes have no
    in-edge, 47 % at most three, 0.7 % more than 200.

    Sources: each node has a rank, from 0 to N - 1, in a random order. A source has a rank below r
    with probability (r / N)^(1 / skew). With a skew of 2 the first hundredth of the ranks makes up
    a tenth of all sources, the first rank of 1.6 G edges 150,000 of them, and out-degrees follow a
    power law of exponent 3.

    Classes: the class of rank r is r modulo `classes`. A share `homophily` of the sources is moved
    to the nearest rank of the target's class. Features are the mean of the node's class plus
    uniform noise of variance 1 per column.
    """

    KIND = "papers-like"
    ABOUT = "Graph in the shape of papers100M"
    ORIGIN = "papers_generator"

    nodes: int = _PAPERS  # number of nodes N, from 4 per class up to 2^31
    seed: int = 0  # seed of every random choice
    degree: float = 14.5  # mean number of in-edges
    tail: float = 1.5  # exponent of the law of in-degrees, above 1
    skew: int = 2  # whole exponent of the law of sources; 1 makes all nodes equally likely
    classes: int = 172  # number of classes
    features: int = 128  # number of feature columns
    signal: float = 2.5  # length of a class's mean feature vector, in standard deviations of the noise
    homophily: float = 0.5  # share of the sources that are moved to the class of their target

    def __post_init__(self) -> None:
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
        self._check(bounds)

    @property
    def splits(self) -> dict[str, int]:
        """The number of nodes in each split, in the proportions of papers100M."""
        return {name: max(1, round(self.nodes * count / _PAPERS)) for name, count in _PAPERS_SPLITS.items()}

    @property
    def most_in_edges(self) -> int:
        """The most in-edges that a node can have."""
        return min(_MOST_IN_EDGES, self.nodes)

    @property
    def estimated_bytes(self) -> int:
        return int(self.nodes * (4 * self.degree + 8 + 2 * self.features + 2))
