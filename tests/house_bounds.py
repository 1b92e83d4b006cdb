"""The size of the house: what one engineer can carry. A ceiling only falls.

Whoever needs room makes room, in the same room. A new room states its ceiling once.
"""

BOUNDS = {
    "package: Python files": 306,
    "package: Python lines": 72_897,
    "lines of train": 9_992,
    "lines of data": 7_695,
    "lines of loader": 7_599,
    "lines of port": 6_715,
    "lines of nn": 5_247,
    "lines of ops": 5_247,
    "lines of sample": 4_753,
    "lines of partition": 4_295,
    "lines of tables": 4_000,
    "lines of comm": 3_013,
    "lines of store": 2_852,
    "lines of planner": 1_749,
    "lines of cache": 1_794,
    "lines of fetch": 1_547,
    "lines of embed": 1_584,
    "lines of device": 1_272,
    "lines of history": 1_032,
    "lines of disk": 673,
    "lines of types": 856,
    "lines of doctor": 506,
    "lines of top level": 476,
    "C++: files": 144,
    "C++: lines": 21_376,
    "tests: lines": 58_861,
    "benchmark: lines": 11_812,
    "benchmark: bytes of results": 1_000_000,
    # Files of the package that a call crosses.
    "files crossed: constructing a loader": 28,
    "files crossed: a step of native SAGE": 18,
    # torch and PyTorch Geometric aside.
    "modules loaded: a loader and accelerate": 110,
}
