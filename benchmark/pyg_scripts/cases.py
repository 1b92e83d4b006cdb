"""PyG's benchmark scripts, with the arguments that make them short."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A run of one of PyG's benchmark scripts.

    Attributes:
        group: the folder of the script, by which cases are chosen.
        name: its name in tables.
        script: its path in a checkout of PyG.
        arguments: its own arguments.
        backend: the backend of two ranks; empty for a script of one process.
    """

    group: str
    name: str
    script: str
    arguments: tuple[str, ...]
    backend: str = ""


LOADER = "benchmark/loader/neighbor_loader.py"
TRAINING = "benchmark/training/training_benchmark.py"
INFERENCE = "benchmark/inference/inference_benchmark.py"
RANKS = "benchmark/multi_gpu/training/common.py"

_DATASETS = ("--datasets", "ogbn-mag", "ogbn-products", "Reddit")
_HOMOGENEOUS = ("--datasets", "ogbn-products", "Reddit")
_MODELS = ("--models", "edge_cnn", "gat", "gcn", "pna", "sage", "rgat", "rgcn")
_NETWORK = ("--num-layers", "2", "--num-hidden-channels", "64")
_TRAINING = (*_MODELS, *_NETWORK, *("--batch-sizes", "512", "--num-workers", "0", "--no-progress-bar"))
_INFERENCE = (*_DATASETS, *_MODELS, *_NETWORK, "--eval-batch-sizes", "512")
_SAMPLING = ("--batch-sizes", "[1024]", "--homo-neighbor_sizes", "[[10, 5], [15, 10, 5]]")
_ONLY_SAMPLING = (*_SAMPLING, "--eval-batch-sizes", "[]", "--subgraph-type")

CASES = (
    Case("loader", "loader", LOADER, (*_SAMPLING, "--eval-batch-sizes", "[1024]")),
    Case("loader", "loader, bidirectional", LOADER, (*_ONLY_SAMPLING, "bidirectional")),
    Case("loader", "loader, induced", LOADER, (*_ONLY_SAMPLING, "induced")),
    Case("training", "training", TRAINING, (*_DATASETS, *_TRAINING)),
    Case("training", "training, --trim", TRAINING, (*_HOMOGENEOUS, *_TRAINING, "--trim")),
    Case("training", "training, --num-steps 2", TRAINING, (*_DATASETS, *_TRAINING, "--num-steps", "2")),
    Case("training", "training, --bf16", TRAINING, (*_DATASETS, *_TRAINING, "--bf16")),
    Case("inference", "inference", INFERENCE, _INFERENCE),
    Case("inference", "inference, --cached-loader", INFERENCE, (*_INFERENCE, "--cached-loader")),
    *(
        Case(
            "multi_gpu",
            f"2 ranks, {backend}, {model}",
            RANKS,
            (*("--dataset", dataset, "--model", model), "--batch-size", "512", "--num-layers", "2"),
            backend,
        )
        for backend in ("gloo", "ccl")
        for dataset, model in (("Reddit", "sage"), ("ogbn-mag", "rgcn"))
    ),
)
GROUPS = (*dict.fromkeys(case.group for case in CASES), "examples")
