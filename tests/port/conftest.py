"""Tests of a room whose models have random weights: each begins with the same numbers."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
