# Everything runs in a private environment (.venv) that make creates on first use.
PYTHON      ?= python3
VENV        := .venv
BIN         := $(VENV)/bin
# Tests of one file stay with one worker for the most part, so that what they share is made once.
PYTEST_ARGS ?= -n auto --dist worksteal
ZOO_ARGS    ?=
BENCH_ARGS  ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test docs transcripts lint bless hooks lock format zoo zoo-check zoo-profile bench bench-check tables clean

help: ## list what can be done
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.with-base ## read a word from a picture with a trained model, and see where the time goes
	$(BIN)/whence demo

# Types are checked by one core while the tests begin, so that none is idle.
test: $(VENV)/.with-dev ## everything that CI runs: lint, types, tests (PYTEST_ARGS="-m 'not slow'" leaves out the slow ones)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict & types=$$!; \
	$(BIN)/pytest $(PYTEST_ARGS); tests=$$?; \
	wait $$types || { echo "mypy --strict found errors, above"; exit 1; }; \
	exit $$tests

lint: $(VENV)/.with-dev ## style and types, without the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

bless: $(VENV)/.with-dev ## what tests of passes and generated code find now is right: write it into their files
	$(BIN)/pytest tests/filetests tests/replay --bless

hooks: ## lint before every commit in this clone
	git config core.hooksPath tools/hooks

lock: $(VENV)/.with-dev ## the versions installed here are those that CI uses: write .ci/constraints.txt
	$(BIN)/python tools/lock.py

docs: $(VENV)/.with-docs ## the documentation as a site, in build/site
	$(BIN)/python -m tools.reference_pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open build/site/index.html, or see it with: $(BIN)/mkdocs serve"

transcripts: $(VENV)/.with-base ## docs/two_minutes.md from what the commands print (MODEL=file.onnx)
	$(BIN)/python -m tools.transcripts $(MODEL)

format: $(VENV)/.with-dev ## rewrite the code in our style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

zoo: $(VENV)/.with-base ## fetch the real models into your cache (ZOO_ARGS="--small" or names)
	$(BIN)/python -m zoo.fetch $(ZOO_ARGS)

zoo-check: $(VENV)/.with-dev ## run every fetched model and compare it with ONNX Runtime, LiteRT or onert
	$(BIN)/python -m zoo.check $(ZOO_ARGS)

zoo-profile: $(VENV)/.with-dev ## profile every fetched model and see that its time adds up (ZOO_ARGS="--files" or names)
	$(BIN)/python -m zoo.profile_check $(ZOO_ARGS)

bench: $(VENV)/.with-bench ## measure against ONNX Runtime and OpenVINO, side by side
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-check: $(VENV)/.with-bench ## a part of docs/performance.md measured again, in five minutes: has anything fallen behind? (BENCH_ARGS="--record")
	$(BIN)/python -m benchmarks.check $(BENCH_ARGS)

tables: $(VENV)/.with-base ## the tables of docs/performance.md from what benchmarks recorded with --record
	$(BIN)/python -m benchmarks.tables

clean: ## remove the environment and everything built (fetched models stay in your cache)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "whence needs Python 3.11 or newer; name one with: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A stamp per set of packages: a second run installs nothing until pyproject.toml changes.
$(VENV)/.with-base: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

# With the versions that CI has, so that a test which fails there fails here.
$(VENV)/.with-dev: pyproject.toml .ci/constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint .ci/constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.with-base

$(VENV)/.with-bench: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@touch $@ $(VENV)/.with-base

$(VENV)/.with-docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@ $(VENV)/.with-base
