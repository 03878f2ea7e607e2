# On a fresh machine: `make train` trains the quick start, `make test` runs the tests. Both set up .venv first; `make install` does only that.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install train test check fix format lint types fast-tests bench bench-peers walk audit-peers audit-agents audit-matrix audit-unusual learn learn-agents export-table bugs soak kills chaos ranks hosts worlds sweep-proof hostile view-proof pictures api docs links clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A stamp per extra: the environment is set up again when pyproject.toml changes.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "Holdfast needs Python 3.11, 3.12 or 3.13; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || { echo "Making $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "Installing Holdfast into $(VENV) (a minute or two the first time) ..."
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed
	@echo "Installing the development tools ..."
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.installed-docs: pyproject.toml $(VENV)/.installed
	@echo "Installing the documentation tools ..."
	@$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

install: $(VENV)/.installed  ## set up .venv with Holdfast in it, and no more
	@echo "Holdfast is in $(BIN)/holdfast: source $(BIN)/activate, or write the whole path."

train: $(VENV)/.installed  ## train the quick start (ARGS="key=value ..." changes settings)
	@$(BIN)/holdfast train $(ARGS)

# Coverage is measured when all tests run; for a part of them it says little.
PYTEST := -m pytest -n auto --dist worksteal
test: $(VENV)/.installed-dev  ## all tests, with coverage (ARGS="tests/ppo -k gae": only those, without)
ifeq ($(ARGS),)
	$(BIN)/python $(PYTEST) -m compiles
	$(BIN)/python -m slipcover $(PYTEST) -m "not compiles"
else
	$(BIN)/python $(PYTEST) $(ARGS)
endif

fast-tests: $(VENV)/.installed-dev  ## the tests that take less than a few seconds each
	$(BIN)/python $(PYTEST) -m "not slow" $(ARGS)

check: format lint types  ## formatting, lint and types; CI runs this and `make test`

fix: $(VENV)/.installed-dev  ## format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev
	$(BIN)/pyright

bench: $(VENV)/.installed  ## ratios of speed, as a table (ARGS="--json out.json")
	$(BIN)/python proofs/bench/run.py $(ARGS)

bench-peers: $(VENV)/.installed  ## compare with other libraries: time to a goal and steps/s (25 minutes; ARGS=--quick to try)
	$(BIN)/python proofs/peers/compare.py $(ARGS)

walk: $(VENV)/.installed  ## the functions and files an observation passes from the world to the gradient
	@$(BIN)/python proofs/walk.py

audit-peers: $(VENV)/.installed  ## audit recurrent policies of other libraries
	$(BIN)/python proofs/audit_peers.py $(ARGS)

audit-agents: $(VENV)/.installed  ## audit every agent with every core and twenty seeds: is there a false alarm? (long)
	$(BIN)/python proofs/audit_agents.py $(ARGS)

audit-matrix: $(VENV)/.installed  ## audit the broken policies of the tests; writes docs/audit-matrix.md and the key of known bugs
	PYTHONPATH=tests $(BIN)/python -m audit.mutants.matrix

audit-unusual: $(VENV)/.installed  ## audit correct policies of unusual kinds with five seeds: is there a false alarm? (long)
	PYTHONPATH=tests $(BIN)/python -m audit.false_alarms $(ARGS)

learn: $(VENV)/.installed  ## the ready-made settings with a goal, three seeds: do they learn? (long)
	$(BIN)/python proofs/learn.py $(ARGS)

learn-agents: $(VENV)/.installed  ## every agent of both families on the quick start: does it learn? (long)
	$(BIN)/python proofs/agents.py $(ARGS)

export-table: $(VENV)/.installed-dev  ## every agent with every core, as ONNX and as a torch program: the largest difference (an hour)
	$(BIN)/python proofs/export_table.py $(ARGS)

bugs: $(VENV)/.installed  ## what state bugs cost: curves of broken policies beside the right one (long)
	$(BIN)/python proofs/bugs.py $(ARGS)

soak: $(VENV)/.installed  ## 3,000 updates with and without workers: does memory, or anything else, grow? (long)
	$(BIN)/python proofs/soak.py $(ARGS)

kills: $(VENV)/.installed  ## SIGKILL at 104 points of 13 different runs, resumed each time: is each the run it would have been? (long)
	$(BIN)/python proofs/kills.py $(ARGS)

chaos: $(VENV)/.installed  ## ten minutes of everything that can happen to a run (ARGS="--minutes 3")
	$(BIN)/python proofs/chaos.py $(ARGS)

ranks: $(VENV)/.installed  ## 1, 2 and 4 ranks, resumes on other numbers, 20 killed ranks: is each the same run? (long)
	$(BIN)/python proofs/ranks.py $(ARGS)

hosts: $(VENV)/.installed  ## a run on two hosts (network namespaces, needs root), also with a slow network
	$(BIN)/python proofs/hosts.py $(ARGS)

worlds: $(VENV)/.installed-dev  ## train, kill, resume and evaluate in over 80 environments of other packages (10 minutes)
	$(BIN)/python proofs/worlds.py $(ARGS)

hostile: $(VENV)/.installed-dev  ## the tests of hostile run folders; each refusal within 2 s of processor time
	CPU_SECONDS=2 $(BIN)/python -m pytest tests/reliability/test_a_hostile_file_does_nothing.py tests/reliability/test_a_strangers_folder_is_only_data.py

view-proof: $(VENV)/.installed-dev  ## the cue in 100 episodes, memory certificates, speed of the page in Chromium (5 minutes)
	PYTHONPATH=tests $(BIN)/python proofs/view.py $(ARGS)

pictures: $(VENV)/.installed-dev  ## make docs/pictures again: trains in build/pictures, needs Chromium (5 minutes)
	PYTHONPATH=tests $(BIN)/python tools/pictures.py $(ARGS)

api: $(VENV)/.installed  ## write docs/api.md from the docstrings
	$(BIN)/python tools/api_reference.py

docs: $(VENV)/.installed-docs links  ## build the documentation site in build/site; any warning or broken link fails
	$(BIN)/python tools/build_site.py

links:  ## check the links of all Markdown files; nothing is fetched
	$(PYTHON) tools/check_links.py

sweep-proof: $(VENV)/.installed-dev  ## kill a sweep of 3 x 3 runs twice: is its table the same? Search for a learning rate with 12 trials (10 minutes)
	$(BIN)/python proofs/sweep.py $(ARGS)

clean:  ## remove environments and caches, never runs
	rm -rf $(VENV) .venv-* .pytest_cache .ruff_cache .hypothesis .cache build dist
