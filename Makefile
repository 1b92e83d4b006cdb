# Two commands: `make train` sets everything up and runs the main job, `make test` runs every test.
#
#   make train ARGS="cora --model gcn --epochs 20"    arguments for `batchgnn train`
#   make train RANKS=2                                           several processes on this machine
#   make test TESTS="tests/sample -k statistics" JOBS=1          some of the tests, in so many processes (2)
#   make install TORCH_INDEX=<another wheel index>               where the CPU build of torch comes from
#   make install CCL=1                                           with the ccl backend; remembered by the other commands

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
ARGS ?=
RANKS ?= 1
TESTS ?= tests
JOBS ?= 2

BIN := $(VENV)/bin
CCL ?= $(if $(wildcard $(BIN)/.installed-ccl),1)
WITH_CCL := $(filter 1,$(CCL))
INSTALLED := $(BIN)/.installed$(if $(WITH_CCL),-ccl)
LAUNCH := $(if $(filter 1,$(RANKS)),$(BIN)/batchgnn,$(BIN)/torchrun --standalone --nproc-per-node=$(RANKS) -m pyg_batchgnn)
COMMA := ,
SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h')

.DEFAULT_GOAL := help
.PHONY: help install train test lint format docs bench clean

help:
	@sed -n '3,7p' Makefile | cut -c3-
	@echo "targets: install train test lint format docs bench clean"

# torch first and exactly: the package is compiled against it, and a newer one brings gigabytes of CUDA. Only torch itself comes
# from the wheel index; what it depends on comes from the ordinary one.
$(BIN)/.torch:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --retries 1 --no-deps --extra-index-url $(TORCH_INDEX) $(TORCH)
	$(BIN)/python -m pip install --quiet $(TORCH) numpy
	touch $@

$(INSTALLED): $(BIN)/.torch pyproject.toml setup.py $(wildcard build_tools/*.py) $(SOURCES)
	PYG_BATCHGNN_WERROR=$(WERROR) PYG_BATCHGNN_CCL=$(WITH_CCL) \
		$(BIN)/python -m pip install --quiet --quiet --editable '.[test,lint,docs$(if $(WITH_CCL),$(COMMA)ccl)]'
	touch $@

install: $(INSTALLED)

train: install
	$(LAUNCH) train $(ARGS)

test: install
	PYG_BATCHGNN_CCL=$(WITH_CCL) $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS)

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
	$(BIN)/python benchmark/run.py all $(ARGS)

clean:
	rm -rf $(VENV) build dist site *.egg-info pyg_batchgnn/*.so
