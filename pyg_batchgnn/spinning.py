"""A bound on the spinning of OpenMP's waiting threads, in processes that run a command.

After each parallel operator of torch, its threads spin for some milliseconds, in case another
follows. On a machine with other work they take its cores, and wait for threads that have none: a
command took 2 to 8 times as long. The runtime reads its settings when torch is loaded, so a command
sets them before, and a package that is imported cannot.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

#: The turns of a waiting thread before it sleeps, about 0.1 ms. GNU's OpenMP takes 300,000 (8 ms).
#: It is enough for the pauses between the operators of a training step.
TURNS = 3000
#: The variables by which a user chooses. `KMP_BLOCKTIME` is that of Intel's and LLVM's runtimes.
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")

#: The most turns that do little harm to other work.
_MOST = 100_000
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}

_set_here = False


def bound_spinning() -> None:
    """Bounds the spinning of OpenMP's threads in this process and its children, unless the user has
    set it. Call it before torch is imported; later calls change nothing."""
    global _set_here
    if "torch" not in sys.modules and not any(name in os.environ for name in VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = str(TURNS)
        _set_here = True


def chosen_by_user() -> dict[str, str]:
    """Returns the variables about spinning that the user has set."""
    own = {"GOMP_SPINCOUNT"} if _set_here else set()
    return {name: os.environ[name] for name in VARIABLES if name in os.environ and name not in own}


def is_bounded(chosen: Mapping[str, str]) -> bool:
    """Returns whether waiting threads soon sleep with these variables."""
    if chosen.get("OMP_WAIT_POLICY", "").strip().lower() == "passive" or "KMP_BLOCKTIME" in chosen:
        return True
    turns = re.fullmatch(r"(\d+)([kmgt]?)", chosen.get("GOMP_SPINCOUNT", "").strip().lower())
    return turns is not None and int(turns[1]) * _UNITS[turns[2]] <= _MOST
