# `make leaderboard` and `make test` include all set-up.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SUITE ?= smoke
OUT ?= results/$(SUITE)
LOWEST ?= .venv-lowest
DOCS ?= docs/_build/html

.DEFAULT_GOAL := help
.PHONY: help leaderboard bench test test-all test-fast test-lowest lint types docs dist wheel clean \
  integrations check-python

help:
	@echo "make leaderboard   set up, run the $(SUITE) suite, write leaderboard.html and regret.png"
	@echo "make bench         run the arena, dpb-bench-v1 (under half an hour on two cores); resumes"
	@echo "make test          set up and run the tests, without the long ones"
	@echo "make test-all      also audits of all agents, every page and example, and crashes"
	@echo "make test-fast     the tests without processes and browsers, below a minute"
	@echo "make lint types    style and type checks"
	@echo "make docs          build the documentation site, warnings are errors"
	@echo "make test-lowest   the tests with the oldest allowed dependencies"
	@echo "make dist          build the sdist and a wheel without compiled kernels"
	@echo "make wheel         build and test a wheel with compiled kernels, for this Python and system"
	@echo "make integrations  what works with dpb-gym: other packages, each in an environment of its own"
	@echo "make clean         remove the environment and everything generated"
	@echo
	@echo "PYTHON=python3.12 make test selects an interpreter; SUITE=core-v0 make leaderboard a suite."

check-python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) was not found: install Python 3.11 or newer, or run PYTHON=/path/to/python3 make ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "dpb-gym needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1)."; \
	  echo "Install a newer Python and run, for example: PYTHON=python3.11 make ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot create virtual environments: install its venv package (python3-venv on Debian)."; exit 1; }

# uv installs several times faster than pip. Where it is missing or fails, for example as it does not
# read the configuration of pip, pip does the same.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
UV := $(shell command -v uv || echo $(BIN)/uv) pip install --quiet --python $(BIN)/python -c constraints.txt
INSTALL = install() { $(UV) "$$@" 2>/dev/null || $(PIP) "$$@"; }; install -e

# Python writes its byte code once, whatever the shell says: hundreds of modules are compiled otherwise
# in every process.
unexport PYTHONDONTWRITEBYTECODE

# A stamp: every installation rewrites $(BIN)/dpb.
$(VENV)/.installed: pyproject.toml constraints.txt | check-python
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@command -v uv >/dev/null || $(PIP) uv 2>/dev/null || true
	@$(INSTALL) .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	@echo "Installing the requirements of the tests (including PyTorch for CPU) ..."
	@# pip finds a build of PyTorch without CUDA where its configuration names one
	@$(PIP) torch
	@$(INSTALL) '.[test,test-s3,test-serve,sb3,dask,cloud,secure,sign,render,serve,loggers,docs]'
	@touch $@

$(VENV)/.lint: $(VENV)/.test
	@$(INSTALL) '.[lint]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@$(INSTALL) '.[docs]'
	@touch $@

$(LOWEST)/.test: pyproject.toml constraints-lowest.txt | check-python
	@echo "Setting up $(LOWEST) with the oldest dependencies ..."
	@$(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
	  -c constraints-lowest.txt -e '.[test,dask,secure,data]'
	@touch $@

leaderboard: $(VENV)/.installed
	@$(BIN)/dpb run $(SUITE) --out $(OUT)
	@$(BIN)/dpb leaderboard $(OUT) --html leaderboard.html --plot regret.png

# DPB_DATA is the folder of real ratings and searches; without them their tracks are skipped.
BENCH := results/dpb-bench-v1
bench: $(VENV)/.test
	@$(BIN)/dpb run dpb-bench-v1 --out $(BENCH)
	@$(BIN)/dpb leaderboard $(BENCH) --audit --html $(BENCH).html

# Two processes; whole files, in the order of tests/conftest.py.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=40
test: $(VENV)/.test
	@$(PYTEST) -m "not long"

test-all: $(VENV)/.test
	@$(PYTEST)

# For development: two variants of each test of the library that is not slow and starts no process or
# browser, without the sweeps over all agents.
# `make test-all` also runs those of agents, papers, examples, pages, packages and sources.
FAST := $(filter-out tests/agents tests/audits tests/bits tests/docs tests/examples tests/papers \
  tests/plugin tests/release tests/sb3 tests/structure tests/%.py, $(wildcard tests/*)) $(wildcard tests/agents/*.py)
FAST := $(filter-out %/test_laws.py %/test_stretches.py, $(FAST))
test-fast: $(VENV)/.test
	@$(PYTEST) -q -m "not slow and not long and not process and not browser" --variants 2 $(FAST)

# Without Stable-Baselines3 and the loggers: their oldest versions need other dependencies.
test-lowest: $(LOWEST)/.test
	@NUMBA_CACHE_DIR=$(abspath $(LOWEST))/numba $(LOWEST)/bin/python -m pytest -n 2 --dist loadfile \
	  -m "not sb3 and not loggers" --ignore tests/sb3 --ignore tests/docs --ignore tests/release

docs: $(VENV)/.docs
	@$(BIN)/sphinx-build -W --keep-going -q -E -b html docs $(DOCS)
	@! command -v chromium >/dev/null || $(BIN)/python docs/_ext/phone.py $(DOCS)
	@echo "$(DOCS)/index.html"

dist: $(VENV)/.test
	@$(BIN)/python -m hatchling build

KERNELS := build/kernels
wheel: $(VENV)/.test
	@rm -rf $(KERNELS) dist/*-cp*.whl
	@$(BIN)/python hatch_build.py $(KERNELS)
	@DPB_KERNELS=$(abspath $(KERNELS)) $(BIN)/python -m hatchling build -t wheel
	@DPB_WHEEL=$$(echo dist/*-cp*.whl) $(BIN)/python -m pytest -q tests/release/test_packages.py \
	  -k "smoke or every_file or metadata"

lint: $(VENV)/.lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/python docs/_ext/wording.py

types: $(VENV)/.lint
	@$(BIN)/mypy

# Not part of the tests: needs a network and several gigabytes of other packages.
integrations: $(VENV)/.installed
	@$(BIN)/python benchmarks/integrations.py

clean:
	rm -rf $(VENV) $(LOWEST) docs/_build docs/_generated results leaderboard.html regret.png dist build .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
