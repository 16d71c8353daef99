# Every target runs in .venv, which the first one makes; nothing is installed outside it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
CHECKPOINT := demo/glm53_flash
CPP := $(shell find hip tests -name '*.h' -o -name '*.hip' -o -name '*.cpp')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint format typecheck build lock clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

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

clean: ## Remove what the targets made, but .venv
	rm -rf build dist demo *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
