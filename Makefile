# Two commands do all the set-up: `make demo` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The first of these that runs and is new enough; or `make demo PYTHON=/path/to/python`.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' \
	2> /dev/null && { echo "$$python"; break; }; done)

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
BASE := .venv/.installed-base
DEV := .venv/.installed-dev
TORCH := .venv/.installed-torch
PEERS := .venv/peers/.installed
SCENARIO ?= gpt3-175b-megatron
PYTEST ?= -n auto --dist worksteal
HOSTS ?= 4 8
SECONDS_OF_IT := $(or $(SECONDS),3600)
DEVICE ?= cuda
PROFILE ?= out/measured.toml
# Tests are compiled once, not by every process of every run.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: captures help demo test test-all test-long campaign testbed calibrate lint types format bench docs site notebook clean

help: ## What can be made.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 10

demo: $(BASE) ## Install, predict a step of GPT-3 175B on 64 A100s, leave a trace and a picture in out/.
	@mkdir -p out
	@$(BIN)/sim run $(SCENARIO) --trace out/$(SCENARIO).json --picture out/$(SCENARIO).png
	@echo "Open out/$(SCENARIO).json in Perfetto (ui.perfetto.dev); the picture is beside it."

test: $(DEV) ## Install what the tests need and run them.
	$(BIN)/python -m pytest $(PYTEST)

test-long: $(DEV) ## The long ones.
	$(BIN)/python -m pytest $(PYTEST) -m "long and not further"

test-all: test test-long ## Both, and further cases of what the campaign draws at random.
	$(BIN)/python -m pytest $(PYTEST) -m further
	$(BIN)/python -m pytest $(PYTEST) -m "hypothesis and not long" --hypothesis-profile=many

campaign: $(DEV) ## SECONDS (an hour) of mistakes in files and options, laws, flips, kills; violations go to out/campaign.
	$(BIN)/python -m tests.campaign --seconds $(SECONDS_OF_IT)

testbed: $(TORCH) ## Predict, then measure real gloo processes on a network of namespaces (root).
	TESTBED_HOSTS="$(HOSTS)" $(BIN)/python -m pytest tests/testbed -m testbed -rs $(AGAIN)

calibrate: $(TORCH) ## Profile this machine's DEVICE, measure training steps on it; goes on where it stopped.
	@mkdir -p $(dir $(PROFILE))
	$(PIP) install --constraint constraints.txt --editable '.[calibrate]'
	$(BIN)/python -m benchmarks.calibration --device $(DEVICE) --out $(PROFILE)

captures: $(TORCH) ## Record projects that nobody here wrote, in the folder PROJECTS or cloned; NAMES="mingpt dit".
	$(BIN)/python -m benchmarks.projects $(NAMES)

lint: $(DEV) ## ruff.
	$(BIN)/ruff check .

types: $(DEV) ## mypy, strict.
	$(BIN)/mypy

format: $(DEV) ## Lay the code out as ruff does.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DEV) $(PEERS) ## Speed: every figure beside a plain way or a peer; TABLE=runs.csv adds the regret of choices.
	$(BIN)/python -m benchmarks.run $(if $(TABLE),--table $(TABLE))
	$(BIN)/python -m benchmarks.sharing
	$(BIN)/python -m benchmarks.history
	$(BIN)/python -m benchmarks.learning

docs: $(DEV) ## Run what README.md and docs show and write down what it prints; TABLES=... fills their tables.
	$(BIN)/python -m docs.refresh $(TABLES)

site: $(DEV) ## Build the documentation as a site, links checked, in out/site.
	$(BIN)/python -m docs.reference
	$(BIN)/python -m docs.schema
	$(BIN)/mkdocs build --strict --quiet

notebook: $(DEV) ## Open the notebooks.
	$(PIP) install --constraint constraints.txt --editable '.[notebook]'
	$(BIN)/jupyter lab notebooks

clean: ## Remove what was made here, .venv included.
	rm -rf .venv out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a second call installs nothing unless the requirements have changed.
$(BASE): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed; make PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@echo "installing into .venv (a minute or two)" >&2
	$(PIP) install --editable .
	$(BIN)/python -m compileall -q sim  # pip compiles only what it copies: a start from source takes twice as long
	@touch $@

$(DEV): $(BASE) constraints.txt
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Peers, which want older versions of what they need: without it, as nothing here calls for it.
$(PEERS): $(BASE)
	@test -x .venv/peers/bin/python || $(BIN)/python -m venv .venv/peers
	.venv/peers/bin/python -m pip --disable-pip-version-check --quiet install --no-deps \
		llm-analysis==0.2.2 fire==0.7.1 termcolor==3.2.0
	@touch $@

$(TORCH): $(DEV)
	$(PIP) install --constraint constraints.txt --editable '.[torch,learning]'
	@touch $@
