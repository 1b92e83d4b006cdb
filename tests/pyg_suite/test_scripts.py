"""PyG's benchmark scripts run with one changed import, and their output is read."""

from __future__ import annotations

import pytest

from benchmark.pyg_scripts.measure import CASES, Case, Side, figures, missing, pyg_checkout, run

#: The shortest run of each script, and the number of figures that it prints.
SHORT = {
    "loader": (("--datasets", "arxiv", "mag", "--runs", "1", "--hetero-neighbor_sizes", "[[3]]"), 5),
    "training, --trim": (("--datasets", "Reddit", "--models", "sage"), 1),
    "inference": (("--datasets", "ogbn-mag", "--models", "rgcn"), 1),
    "2 ranks, gloo, sage": ((), 1),
}


@pytest.mark.skipif(pyg_checkout() is None, reason=missing())
@pytest.mark.parametrize("name", SHORT)
def test_a_script(name: str) -> None:
    case: Case = next(one for one in CASES if one.name == name)
    arguments, count = SHORT[name]
    backend = ["--backend", case.backend] if case.backend else []
    script = [f"{pyg_checkout()}/{case.script}", *case.arguments, *arguments]
    printed = run(Side.OURS, ["--scale", "0.002", *backend, *script], ranks=2 if case.backend else 0)
    assert len(list(figures(printed))) == count, printed
