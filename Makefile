# Every target that needs Python depends on the stamp, so that each installs by itself, pinned, into .venv.

PYTHON ?= python3
SEEDS ?= 2000
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# The theme's makers advertise on stderr, unless they are told not to.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

# One run of the long fuzz for each protocol and each size of its groups, called fuzz-NAME-SIZE.
LIST_FUZZ_RUNS := from amcast.protocols import PROTOCOLS; \
	print(*(f"fuzz-{spec.name}-{size}" for spec in PROTOCOLS.values() for size in spec.fuzz_replicas))

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test check reproduce lint format bench bench-cluster soak-cluster bench-operations bench-spark bench-state nemesis bank attack \
	fuzz fuzz-nodes light docs docs-serve clean

help: ## Show this help
	@printf 'Usage: make <target> [VARIABLE=value]\n\nTargets:\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile
	@printf '\nVariables:\n'
	@printf '  %-13s %s\n' \
		PYTHON 'the interpreter behind .venv, 3.11 or newer ($(PYTHON))' \
		SEEDS 'seeds of each run of make fuzz and fuzz-nodes ($(SEEDS))' \
		PYTEST_ARGS 'more arguments for pytest, such as -k name'

setup: $(STAMP) ## Install everything, pinned, into .venv

$(STAMP): requirements-dev.txt pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "error: '$(PYTHON)' was not found; install Python 3.11 or newer," \
			"or name one: make PYTHON=python3.12" >&2; \
		exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: amcast needs Python 3.11 or newer, but '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1);" \
			"name another: make PYTHON=python3.12" >&2; \
		exit 1; }
	@echo "Installing into $(VENV) ..."
	@"$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	@touch $@

run: $(STAMP) ## Run the demo
	@$(BIN)/amcast demo

test: $(STAMP) ## Run the tests on all cores
	$(BIN)/python -m pytest -q -n auto --dist loadgroup $(PYTEST_ARGS)

check: ## Run what CI runs: lint, then test
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test

lint: $(STAMP) ## Check style, formatting, types and import directions
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(STAMP) ## Format the code and apply the linter's safe fixes
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

docs: $(STAMP) ## Build the documentation's site into site/
	$(MKDOCS) build --quiet --clean

docs-serve: $(STAMP) ## Show the documentation at http://127.0.0.1:8000, anew after each change
	$(MKDOCS) serve --dev-addr 127.0.0.1:8000

bench: $(STAMP) ## Run the benchmarks
	$(BIN)/python -m bench

bench-cluster: $(STAMP) ## Measure a real cluster against the peers that are installed (minutes; needs a quiet machine)
	$(BIN)/python -m bench.cluster --out runs/bench

reproduce: $(STAMP) ## Run the papers' experiments again, and write docs/reproduction.md (half an hour; stop it and it goes on)
	$(BIN)/amcast reproduce all --out reproductions/small
	rm -rf docs/reproduction && cp -r reproductions/small/reproduction docs/
	cp reproductions/small/reproduction.md docs/

soak-cluster: $(STAMP) ## Run a real cluster for five minutes at 80 % of what it can do, and watch its memory
	$(BIN)/python -m bench.cluster --soak

bench-operations: $(STAMP) ## Measure linearizability on Spark, at 10 million operations on a million objects (minutes)
	$(BIN)/python -m bench.operations

bench-spark: $(STAMP) ## Measure the Spark checks, at 10 and 100 million deliveries (minutes)
	$(BIN)/python -m bench.spark

bench-workload: $(STAMP) ## Draw 100 million transactions of gTPC-C on Spark, and check their frequencies (10 minutes)
	$(BIN)/python -m bench.workload

nemesis: $(STAMP) ## Torment a real cluster of each protocol: crashes, restarts, links, clocks, disks (20 minutes)
	$(BIN)/python -m bench.nemesis --rounds 20

bank: $(STAMP) ## Torment the sharded bank of examples/bank on real clusters: no money may be made or lost (ten minutes)
	$(BIN)/python -m bench.bank --rounds 20

attack: $(STAMP) ## Attack a real cluster with TLS and tokens: strangers, liars, floods, of every protocol (ten minutes)
	$(BIN)/python -m bench.attack

bench-state: $(STAMP) ## Run a million messages through each protocol: its state and disk must not grow (two hours)
	$(BIN)/python -m bench.state

fuzz: $(STAMP) ## Run the long fuzz: each protocol, all faults, SEEDS seeds
	@runs=$$($(BIN)/python -c '$(LIST_FUZZ_RUNS)') && $(MAKE) --no-print-directory $${runs:?}

fuzz-nodes: $(STAMP) ## Fuzz whole nodes, SEEDS seeds of each protocol; stop it and it goes on where it was
	$(BIN)/amcast fuzz --driver node --protocol all --seeds $(SEEDS) --resume runs/fuzz-nodes.json

fuzz-%: $(STAMP)
	$(BIN)/amcast fuzz --protocol $(patsubst %-$(lastword $(subst -, ,$*)),%,$*) --replicas $(lastword $(subst -, ,$*)) \
		--seeds $(SEEDS) --faults all

light: $(STAMP) ## Install the wheel without extras into a fresh environment, measure it, and use it there (a minute)
	$(BIN)/python -m bench.light

clean: ## Remove .venv, caches and build output (runs/ stays)
	rm -rf $(VENV) build dist site src/*.egg-info .hypothesis .import_linter_cache .grimp_cache \
		.mypy_cache .pytest_cache .ruff_cache
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
