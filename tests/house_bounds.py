"""The size of the house: what one engineer can carry. A change may raise a number only with the
reason beside it."""

BOUNDS = {
    "package: Python files": 270,
    "package: Python lines": 55_000,
    "C++: files": 170,
    "C++: lines": 18_000,
    "tests: lines": 40_000,
    "benchmark: lines": 10_000,
    "benchmark: bytes of results": 1_000_000,
    # Files of the package that a call crosses.
    "files crossed: constructing a loader": 30,
    "files crossed: a step of native SAGE": 20,
    "files crossed: a hop over ranks": 10,
    "files crossed: batchgnn train": 100,
    # torch and PyTorch Geometric aside.
    "modules loaded: a loader and accelerate": 120,
}
