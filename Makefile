# Every target works on a fresh machine: it creates .venv and installs what it needs first.
# A virtual environment is only touched again when pyproject.toml or constraints.txt changed.

PYTHON ?= python3
JOBS ?= 2
N ?= 100
SECONDS ?= 600
DEMO_OUT ?= demo-output

BIN := .venv/bin
INSTALLED := .venv/.installed
INSTALLED_CLUSTER := .venv/.installed-cluster
INSTALLED_DOCS := .venv/.installed-docs
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo docs browser test test-slow test-cluster kill fuzz check bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

install: $(INSTALLED)  ## create .venv and install deeptram with its development tools

demo: $(INSTALLED)  ## fit, print and draw a model on embedded data; results in demo-output/
	$(BIN)/python examples/demo_ordinal.py --out $(DEMO_OUT)
	$(BIN)/deeptram demo --force --out $(DEMO_OUT)/digits

docs: $(INSTALLED_DOCS)  ## build the site into build/site (open build/site/index.html); every page's code is run
	OMP_NUM_THREADS=1 NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

browser:  ## install Chromium (Debian, as root), with which the tests open the report
	apt-get update
	apt-get install -y --no-install-recommends chromium

test: $(INSTALLED)  ## the default test suite: unit tests, docstrings, README and docs
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-slow: $(INSTALLED)  ## the tests that take long
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "slow and not cluster"

test-cluster: $(INSTALLED_CLUSTER)  ## the tests that start a Dask or Ray cluster
	$(BIN)/python -m pytest -m cluster

kill: $(INSTALLED)  ## kill runs with two workers N times (make kill N=100): numbers stay, workers go
	DEEPTRAM_KILLS=$(N) $(BIN)/python -m pytest -n 0 -s tests/paper/test_kill.py

fuzz: $(INSTALLED)  ## hostile calls of everything public for SECONDS; prints each finding with its seed
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/campaign.py --seconds $(SECONDS) --start $$(date +%s)

check: $(INSTALLED)  ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

bench: $(INSTALLED)  ## every benchmark, one after the other
	@set -e; for script in $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)); do \
	    echo "== $$script"; $(BIN)/python $$script; done

clean:  ## remove what was generated; .venv stays
	rm -rf build dist $(DEMO_OUT) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP_INSTALL) -e ".[dev]"
	@touch $@

$(INSTALLED_CLUSTER): $(INSTALLED)
	$(PIP_INSTALL) -e ".[dev,cluster]"
	@touch $@

$(INSTALLED_DOCS): $(INSTALLED)
	$(PIP_INSTALL) -e ".[dev,docs]"
	@touch $@
