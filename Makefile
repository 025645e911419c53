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
# torch stays at the version of constraints.txt: other builds bring gigabytes of GPU libraries.
TORCH := $(shell grep ^torch== constraints.txt)
# What the tests compare with, as far as it runs on old versions; tests that need more are skipped there.
TEST_TOOLS := pytest pytest-xdist hypothesis mpmath lifelines statsmodels ngboost onnxruntime polars scikit-survival \
    scoringrules
OLD_WARNINGS := -W ignore::DeprecationWarning -W ignore::FutureWarning  # of old packages about one another
TESTS ?=
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo docs site-check browser test test-slow test-cluster test-oldest test-newest coverage \
    wheel-test kill kill-workers fuzz check bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

install: $(INSTALLED)  ## create .venv and install deeptram with its development tools

demo: $(INSTALLED)  ## fit, print and draw a model on embedded data; results in demo-output/
	$(BIN)/python examples/demo_ordinal.py --out $(DEMO_OUT)
	$(BIN)/deeptram demo --force --out $(DEMO_OUT)/digits

docs: $(INSTALLED_DOCS)  ## build the site into build/site (open build/site/index.html); every page's code is run
	OMP_NUM_THREADS=1 NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

site-check:  ## open every page of the built site in Chromium: labels, contrast, links, no message, no request
	$(BIN)/python tests/site/site_checks.py build/site

browser:  ## install Chromium (Debian, as root), with which the tests open the report
	apt-get update
	apt-get install -y --no-install-recommends chromium

test: $(INSTALLED)  ## the default test suite: unit tests, docstrings, README and docs
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-slow: $(INSTALLED)  ## the tests that take long
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "slow and not cluster"

test-cluster: $(INSTALLED_CLUSTER)  ## the tests that start a Dask or Ray cluster
	$(BIN)/python -m pytest -m cluster

test-oldest:  ## the test suite with the oldest versions that pyproject.toml allows, in .venv-oldest (TESTS= for some)
	mkdir -p build
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python .ci/lower_bounds.py > build/oldest.txt
	.venv-oldest/bin/python -m pip install -q -c build/oldest.txt -e ".[parquet,images,dask,export]" $(TEST_TOOLS)
	.venv-oldest/bin/python -m pytest -n $(JOBS) --dist worksteal $(OLD_WARNINGS) $(TESTS)

test-newest:  ## the test suite with the newest versions there are (torch stays pinned), in .venv-newest
	test -x .venv-newest/bin/python || $(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install -q --upgrade --upgrade-strategy eager $(TORCH) -e ".[dev]"
	.venv-newest/bin/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

coverage: $(INSTALLED)  ## the default test suite, and which share of the lines and branches it runs
	$(BIN)/python -m coverage erase
	# in eight threads at once the tracer of Python 3.11 cannot always start: an error of its own
	$(BIN)/python -m coverage run -m pytest -q -n $(JOBS) --dist worksteal --ignore tests/test_threads.py $(TESTS)
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage report

wheel-test: $(INSTALLED)  ## build wheel and sdist into dist/, check their content, use the wheel in an empty folder
	$(BIN)/python .ci/wheel_test.py

kill: $(INSTALLED)  ## kill runs with two workers N times (make kill N=100): numbers stay, workers go
	DEEPTRAM_KILLS=$(N) $(BIN)/python -m pytest -n 0 -s tests/paper/test_kill.py

kill-workers: $(INSTALLED_CLUSTER)  ## kill workers of Dask and Ray at random in N runs (make kill-workers N=20): numbers stay
	DEEPTRAM_KILLED_RUNS=$(N) $(BIN)/python -m pytest -n 0 -s -m cluster tests/paper/test_places.py -k killed

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
	rm -rf build dist .coverage* $(DEMO_OUT) .pytest_cache .mypy_cache .ruff_cache .hypothesis
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
