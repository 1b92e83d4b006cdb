"""One contestant in a process of its own: reads orders, does rounds and answers, all as JSON lines.

Started by :mod:`harness` with the contestant's interpreter, thread count and allocator settings already in
the environment. Runs under every peer's interpreter, hence imports nothing of the project by itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib import import_module

from jobs import Job, Options
from meters import AllocationMeter, measure


def prepare(side: str, job: str, options: Options) -> tuple[Job, dict[str, str]]:
    """Import the side's module, build the job, and name the versions that take part."""
    import torch

    torch.set_num_threads(options.threads)
    module = import_module(f"contestants.{side}")
    builder = module.JOBS[job]
    return builder(options), {"torch": torch.__version__, **module.versions()}


def main() -> None:
    """Answer orders until the driver closes the pipe."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries that greet on standard output must not end up among the answers
    order = json.loads(sys.stdin.readline())
    try:
        started = time.perf_counter()
        job, versions = prepare(order["side"], order["job"], Options.from_dict(order["options"]))
        answers.write(json.dumps({"setup": time.perf_counter() - started, "versions": versions}) + "\n")
        meter = AllocationMeter()
        for line in sys.stdin:
            answers.write(json.dumps(measure(job, json.loads(line)["round"], meter)) + "\n")
    except Exception as error:
        traceback.print_exc()
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}".splitlines()[0]}) + "\n")


if __name__ == "__main__":
    main()
