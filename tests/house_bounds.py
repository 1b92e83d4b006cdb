"""The size of the house: what one engineer can carry. A ceiling only falls.

Whoever needs room makes room, in the same room. A new room states its ceiling once.
"""

BOUNDS = {
    "package: Python files": 308,
    "package: Python lines": 79_030,
    "lines of train": 11_282,
    "lines of data": 8_618,
    "lines of loader": 8_123,
    "lines of port": 6_716,
    "lines of nn": 5_312,
    "lines of ops": 5_277,
    "lines of sample": 4_829,
    "lines of partition": 4_643,
    "lines of tables": 4_253,
    "lines of comm": 3_604,
    "lines of store": 3_336,
    "lines of planner": 2_150,
    "lines of cache": 1_908,
    "lines of fetch": 1_827,
    "lines of embed": 1_674,
    "lines of device": 1_599,
    "lines of history": 1_081,
    "lines of disk": 929,
    "lines of types": 864,
    "lines of doctor": 529,
    "lines of top level": 476,
    "C++: files": 144,
    "C++: lines": 21_376,
    "tests: lines": 59_400,
    "benchmark: lines": 12_790,
    "benchmark: bytes of results": 1_000_000,
    # Files of the package that a call crosses.
    "files crossed: constructing a loader": 28,
    "files crossed: a step of native SAGE": 19,
    "files crossed: a hop over ranks": 10,
    "files crossed: batchgnn train": 91,
    # torch and PyTorch Geometric aside.
    "modules loaded: a loader and accelerate": 110,
}
