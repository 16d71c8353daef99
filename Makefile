# Every target runs in .venv, or .venv-sglang, which the first one makes; nothing is installed outside them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
SGLANG_VENV := .venv-sglang
SGLANG_BIN := $(SGLANG_VENV)/bin
SGLANG_READY := $(SGLANG_VENV)/ready
SGLANG := sglang==0.5.23
CHECKPOINT := demo/glm53_flash
CPP := $(shell find hip tests -name '*.h' -o -name '*.hip' -o -name '*.cpp')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test upstream e2e serve-demo lint format typecheck build lock clean

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

setup: $(READY) ## Make .venv with the package and what its tests need

$(READY): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(CHECKPOINT)/config.json ## Decode on this CPU with the fused kernels, every step checked against the reference
	$(BIN)/amd-mono build --arch host
	$(BIN)/amd-mono decode $(CHECKPOINT) --prompt "The decode step of a hybrid model" --steps 16 --check

$(CHECKPOINT)/config.json: | $(READY)
	$(BIN)/amd-mono make-checkpoint glm53_flash $(CHECKPOINT)

test: $(READY) ## Run the tests that need no GPU
	$(BIN)/pytest

upstream: $(SGLANG_READY) ## Run the tests that run SGLang itself, on this CPU
	$(SGLANG_BIN)/pytest tests/upstream

e2e: $(SGLANG_READY) ## Run the tests that start SGLang servers: on this CPU, or on an MI355X with MONO_E2E_MODEL
	$(SGLANG_BIN)/pytest tests/e2e

serve-demo: $(SGLANG_READY) ## Serve a tiny model in SGLang on this CPU, with the monokernel and without, over HTTP
	$(SGLANG_BIN)/amd-mono build --arch host
	$(SGLANG_BIN)/python -m tests.e2e.demo

# SGLang's own requirements bring a CUDA build of torch and some 70 CUDA packages: pip is to install what is listed alone.
$(SGLANG_READY): pyproject.toml setup.py tests/sglang_cpu/requirements.txt
	$(PYTHON) -m venv $(SGLANG_VENV)
	@echo "installing $(SGLANG) and torch for it (2.5 GB) ..."
	$(SGLANG_BIN)/pip install --quiet --no-deps --requirement tests/sglang_cpu/requirements.txt $(SGLANG)
	$(SGLANG_BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

lint: $(READY) ## Check style: Python by ruff, kernels by clang-format
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(READY) ## Rewrite all sources in that style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CPP)

typecheck: $(READY) ## Check types with mypy --strict
	$(BIN)/python tools/typecheck.py

build: $(READY) ## Compile the kernels for gfx950 and the host, and check what they occupy
	$(BIN)/amd-mono build --resources

lock: $(READY) ## Rewrite constraints.txt from what .venv holds now
	$(BIN)/pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.txt

clean: ## Remove what the targets made, but the environments
	rm -rf build dist demo *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -path './.venv*' -prune -o -name __pycache__ -type d -exec rm -rf {} +
