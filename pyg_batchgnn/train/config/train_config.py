"""The configuration: everything that decides what a run computes, kept in ``config.json``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from pyg_batchgnn.train.config.checks import (
    check_cache,
    check_fanout,
    check_links,
    check_model,
    check_ranges,
    check_remote,
    check_task,
)
from pyg_batchgnn.train.config.choices import CacheKind, ModelKind
from pyg_batchgnn.train.config.sections import (
    EmbeddingConfig,
    ModelConfig,
    OptimiserConfig,
    RanksConfig,
    RunConfig,
    SamplingConfig,
    TaskConfig,
)


@dataclass(frozen=True)
class TrainConfig:
    """The whole configuration. It is checked when it is made.

    Raises:
        TrainError: a value is out of bounds, or two values contradict each other.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    run: RunConfig = field(default_factory=RunConfig)
    ranks: RanksConfig = field(default_factory=RanksConfig)

    def __post_init__(self) -> None:
        check_ranges({one.name: getattr(self, one.name) for one in fields(self)})
        check_fanout("sampling.fanout", self.sampling.fanout, self.model.num_layers)
        check_fanout("sampling.test_fanout", self.test_fanout, self.model.num_layers)
        check_cache(self.model, self.sampling)
        check_model(self.model)
        check_remote(self.model, self.sampling, self.ranks)
        check_task(self.task)
        check_links(self.task, self.sampling, self.ranks)

    @property
    def test_fanout(self) -> tuple[int, ...]:
        """The fanout of evaluation: 20 at each hop; for GIN that of training (BatchGNN, appendix
        E)."""
        if self.sampling.test_fanout is not None:
            return self.sampling.test_fanout
        return self.sampling.fanout if self.model.kind is ModelKind.GIN else (20,) * self.model.num_layers

    @property
    def evaluates_with_cache(self) -> bool:
        """True if evaluation uses the cached aggregates."""
        sampling = self.sampling
        if sampling.cache is CacheKind.OFF or sampling.evaluate_with_cache is None:
            return sampling.cache is CacheKind.AGGREGATION and self.model.kind is ModelKind.GIN
        return sampling.evaluate_with_cache

    @property
    def test_batch_size(self) -> int:
        """Nodes per minibatch of evaluation."""
        return self.sampling.test_batch_size or self.sampling.batch_size
