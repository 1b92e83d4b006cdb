"""One contestant in a process of its own: reads orders, does rounds and answers, all as JSON lines.

Started by :mod:`harness` with the contestant's interpreter, thread count and allocator settings
already in the environment. Runs under every peer's interpreter, hence imports nothing of the
project by itself.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from typing import Any

from benchmark.support.jobs import Job, Options, WorkDone
from benchmark.support.meters import AllocationMeter, measure, release_free_memory


def prepare(order: dict[str, Any]) -> tuple[Job, dict[str, Any]]:
    """Imports the side's module and builds the job; the answer names the versions."""
    import torch

    options = Options.from_dict(order["options"])
    torch.set_num_threads(options.threads)
    module = import_module(f"benchmark.contestants.{order['side']}")
    job = module.JOBS[order["job"]](options)
    versions = {"torch": torch.__version__, **module.versions()}
    release_free_memory()
    return job, {"versions": versions}


def refused(number: int) -> WorkDone:
    raise RuntimeError(f"round {number} of a job that was never prepared")


def main() -> None:
    """Answers orders, each a new job or a round of it, until the driver closes the pipe."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries that greet on standard output must not end up among the answers
    meter = AllocationMeter()
    job: Job = refused
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "job" in order:
                job = refused  # lets go of the one before, which may hold much memory
                job, answer = prepare(order)
            else:
                answer = measure(job, order["round"], meter)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
