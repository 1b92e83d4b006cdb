"""The size of the house: what one engineer can carry. A ceiling only falls.

Whoever needs room makes room, in the same room. A new room states its ceiling once.
"""

BOUNDS = {
    "package: Python files": 289,
    "package: Python lines": 68_298,
    "lines of train": 9_389,
    "lines of data": 7_155,
    "lines of loader": 7_142,
    "lines of port": 6_515,
    "lines of nn": 4_736,
    "lines of ops": 4_650,
    "lines of sample": 4_434,
    "lines of partition": 4_093,
    "lines of tables": 3_895,
    "lines of comm": 2_869,
    "lines of store": 2_730,
    "lines of planner": 1_707,
    "lines of cache": 1_655,
    "lines of fetch": 1_455,
    "lines of embed": 1_429,
    "lines of device": 1_224,
    "lines of history": 919,
    "lines of disk": 632,
    "lines of types": 704,
    "lines of doctor": 502,
    "lines of top level": 463,
    "C++: files": 141,
    "C++: lines": 20_648,
    "tests: lines": 50_317,
    "benchmark: lines": 11_760,
    "benchmark: bytes of results": 1_000_000,
    # Files of the package that a call crosses.
    "files crossed: constructing a loader": 24,
    "files crossed: a step of native SAGE": 16,
    # torch and PyTorch Geometric aside.
    "modules loaded: a loader and accelerate": 102,
}
