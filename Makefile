# Two commands: `make train` sets everything up and runs the main job, `make test` tests every behaviour.
#
#   make train ARGS="cora --model gcn --epochs 20"       arguments for `batchgnn train`
#   make train RANKS=2                                   several processes on this machine
#   make test TESTS="tests/sample -k statistics" JOBS=1  some of the tests, in JOBS processes (2)
#   make test RECORD=1                                   writes the processor seconds of tests/ into tests/seconds.json
#   make test-all                                        all tests: products of options, worlds, examples (half an hour)
#   make test-all SLICE=3/8 TESTS=tests/loader           the third of eight slices of them
#   make install TORCH_INDEX=<another wheel index>       where the CPU build of torch comes from
#   make install CCL=1                                   with the ccl backend; other commands remember it
#   make fuzz KERNELS=sampling SECONDS=60                tries kernels on inputs that libFuzzer (clang 18 or later) chooses
#   make docs                                            builds the documentation site in site/
#   make wheel                                           builds a wheel in dist/ and tests it

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
ARGS ?=
RANKS ?= 1
TESTS ?= tests
JOBS ?= 2
SLICE ?= 1
CLANG ?= clang++-19
KERNELS ?=
SECONDS ?= 60
RECORD ?=

BIN := $(VENV)/bin
CCL ?= $(if $(wildcard $(BIN)/.installed-ccl),1)
WITH_CCL := $(filter 1,$(CCL))
INSTALLED := $(BIN)/.installed$(if $(WITH_CCL),-ccl)
LAUNCH := $(if $(filter 1,$(RANKS)),$(BIN)/batchgnn,$(BIN)/torchrun --standalone --nproc-per-node=$(RANKS) -m pyg_batchgnn)
COMMA := ,
TORCH_LIBRARIES := $(addprefix --exclude ,libc10.so libtorch.so libtorch_cpu.so libtorch_python.so)
SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h')

.DEFAULT_GOAL := help
.PHONY: help install train test test-all fuzz lint format docs bench wheel clean

help:
	@sed -n '3,13p' Makefile | cut -c3-
	@echo "targets: install train test test-all fuzz lint format docs bench wheel clean"

# $(call install_torch,FOLDER) installs PyTorch in the environment whose programs lie in FOLDER.
define install_torch
$(1)/python -m pip install --retries 1 --no-deps --extra-index-url $(TORCH_INDEX) $(TORCH)
	$(1)/python -m pip install --quiet $(TORCH) numpy
endef

# torch comes first and in exactly this release: the package is compiled against it, and a newer one
# brings gigabytes of CUDA. Only torch comes from the wheel index; its dependencies come from PyPI.
$(BIN)/.torch:
	@echo "Makes the environment $(VENV) and installs $(TORCH) in it: a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(call install_torch,$(BIN))
	touch $@

$(INSTALLED): $(BIN)/.torch pyproject.toml setup.py $(wildcard build_tools/*.py) $(SOURCES)
	@echo "Compiles $(words $(filter %.cpp,$(SOURCES))) C++ files and installs the packages that tests need: three to six minutes on two cores. Pip shows each package, and then waits for the compiler."
	PYG_BATCHGNN_WERROR=$(WERROR) PYG_BATCHGNN_CCL=$(WITH_CCL) \
		$(BIN)/python -m pip install --editable '.[test,lint,docs$(if $(WITH_CCL),$(COMMA)ccl)]'
	touch $@

install: $(INSTALLED)

train: install
	$(LAUNCH) train $(ARGS)

# Tests start many processes. Without bytecode each would compile the package's sources anew.
test: export PYTHONDONTWRITEBYTECODE =
# The test processes share the processors. OpenMP's threads sleep while they wait: threads that spin
# took a third of all processor time.
test: export OMP_WAIT_POLICY = passive
test: export PYG_BATCHGNN_TEST_RECORD = $(RECORD)
# A test process that dies is not replaced: with files as units pytest-xdist may wait for the new one
# for ever. The test that it died in fails, and the run ends.
test: install
	PYG_BATCHGNN_CCL=$(WITH_CCL) $(BIN)/python -m pytest --numprocesses $(JOBS) --max-worker-restart 0 --dist loadfile --no-loadscope-reorder $(TESTS)

# What this adds to `make test` is said in tests/support/tiers.py.
test-all: export PYG_BATCHGNN_TEST_ALL = $(SLICE)
test-all: export PYTEST_ADDOPTS = -o timeout=3600 -o faulthandler_timeout=20000
test-all: test

# Inputs that reached something new are kept in build/fuzz, and the next call goes on from them.
# Kernels of layers other than aggregation are left out: they take long to compile.
UNFUZZED := allocation nn/att% nn/la% nn/lin% nn/norm simd/att% simd/la% simd/norm simd/pro% simd/spa%
FUZZED := $(patsubst csrc/kernels/%.cpp,%,$(filter csrc/kernels/%.cpp,$(SOURCES)))
FUZZED := $(addprefix build/fuzz/,$(addsuffix .o,$(filter-out $(UNFUZZED),$(FUZZED))))
FUZZ := $(CLANG) -std=c++20 -O1 -g1 -pthread -Icsrc -Itests/sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all

build/fuzz/%.o: csrc/kernels/%.cpp $(filter %.h,$(SOURCES))
	@mkdir -p $(@D)
	$(FUZZ) -fsanitize=fuzzer-no-link -c $< -o $@

build/fuzz/kernels: build_tools/fuzz_kernels.cpp $(wildcard tests/sanitizers/*) $(FUZZED)
	$(FUZZ) -fsanitize=fuzzer build_tools/fuzz_kernels.cpp tests/sanitizers/blocks.cpp $(FUZZED) -o $@

fuzz: build/fuzz/kernels
	mkdir -p build/fuzz/$(KERNELS)
	KERNELS=$(KERNELS) build/fuzz/kernels -max_total_time=$(SECONDS) -timeout=60 -artifact_prefix=build/fuzz/$(KERNELS). build/fuzz/$(KERNELS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(SOURCES)

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(SOURCES)

# The site lies in site/ and opens without a server. A warning, such as a link that leads nowhere, is an error.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: install
	$(BIN)/python -m benchmark all $(ARGS)

# A wheel for CPython 3.10 and later (abi3), without the ccl backend, which is built from source.
# auditwheel gives it the manylinux tag of this machine's C library and leaves torch's libraries out.
# The smoke test runs in a fresh environment that sees no compiler.
wheel: install
	rm -rf build/wheel build/wheel-env build/lib* build/bdist* dist
	$(BIN)/python -m pip install --quiet --group wheel
	PYG_BATCHGNN_CCL= PYG_BATCHGNN_WERROR=$(WERROR) $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --strip $(TORCH_LIBRARIES) --wheel-dir dist build/wheel/*.whl
	$(PYTHON) -m venv build/wheel-env
	$(call install_torch,build/wheel-env/bin)
	cd build && PATH=$(abspath build/wheel-env/bin) wheel-env/bin/python -m pip install --quiet ../dist/*.whl
	cd build && PATH=$(abspath build/wheel-env/bin) wheel-env/bin/python ../build_tools/smoke_test.py

clean:
	rm -rf $(VENV) build dist site *.egg-info pyg_batchgnn/*.so
