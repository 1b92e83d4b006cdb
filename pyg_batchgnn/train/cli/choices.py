"""The values that options choose from, as help shows them.

They repeat enumerations of rooms that import torch, which help must not wait for. A test compares
them.
"""

from __future__ import annotations

from enum import Enum

#: The names of the presets, the default one first.
PRESET_NAMES = ("batchgnn", "p3", "distdglv2")


class PolicyName(str, Enum):
    """The partitioning policies."""

    RANDOM = "random"
    CONTIGUOUS = "contiguous"
    LDG = "ldg"
    FENNEL = "fennel"
    MULTILEVEL = "multilevel"
    METIS = "metis"


class ReplacementName(str, Enum):
    """The replacement of sampled neighbours: with it or without it."""

    WITHOUT = "without"
    WITH = "with"


class ScheduleOption(str, Enum):
    """The rules by which ranks share training nodes."""

    LOCAL = "local"
    BALANCED = "balanced"
    GLOBAL = "global"


class ModelName(str, Enum):
    """The kinds of models."""

    SAGE = "sage"
    GCN = "gcn"
    GIN = "gin"
    GAT = "gat"
