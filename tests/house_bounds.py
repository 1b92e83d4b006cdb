"""The size of the house: what one engineer can carry. A change may raise a number only with the
reason beside it."""

BOUNDS = {
    # aim: 270. Tables (15); keys, times, logs, Lightning, limits of containers; rows and edges on
    # disk (19); features of one byte (4); batches on a device (10)
    "package: Python files": 308,
    # aim: 55,000. Any model: recording, demand, execution, report and layerwise inference of users'
    # models (4,800 lines of `port`); TransformerConv (340). Tables with their encoders (4,400),
    # keys and predictions with keys (650), runs by time (700), Parquet columns (250), logs,
    # Lightning, containers (500). Graphs larger than memory: reader, writer and rates (950), sweeps
    # in the loader (1,700), passes and predictions (1,300), edges by destination and their
    # conversion (1,400), a generator (450), over ranks (250), the command line (450). Features of
    # one byte: quantising data, folders and partitions (850), a tensor of codes (320), what carries
    # them (900). Batches on a device (2,200). Levels of bfloat16 products (150). Edges in files
    # (460), a first pass beside looking ahead (150), its memory and forecasts beside it (60),
    # batches over ranks that wait on the host (60). Codes as arrays and in collectives, variables
    # that choose kernels (30). Tables by more than an address, files that were written to (20).
    # Settings in classes, objects and files, hooks on gradients (60).
    "package: Python lines": 81_935,
    "C++: files": 144,
    # aim: 18,000. Layer normalisation (500), attention with weights by target (250), rows of files
    # (600), sweeps (480), codes (350), products by a matrix unit (560), open answers (100).
    # Decoding several rows together and past the caches (90).
    "C++: lines": 21_390,
    # aim: 40,000. What is recorded and refused, random models, every layer of PyG (4,200). Tables,
    # keys, times, logs, aarch64, deployment (3,300). Graphs larger than memory (2,600). Codes
    # (1,740), devices (1,780). Edges in files (430), a first pass beside looking ahead (95). Tables
    # at odd places, files that were written to (50). Settings in classes, objects and files, hooks
    # on gradients, classes of models (150).
    "tests: lines": 59_940,
    # Own models beside PyG's (310); PyG's scripts with `model(batch)` (180); tables beside DuckDB's
    # joins (150); a graph larger than memory (720); narrow rows (380), levels (230), a GPU (530).
    # The least time of loading narrow rows, reads at the rates after them, parts by machine (40).
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
