# Each target makes its own environment in .venv; a machine needs only Python 3.11 or newer with pip and venv.

PYTHON ?= python3
# Installed first: without it pip would take the newest build for CUDA. Any torch >= 2.6 will do, e.g. TORCH='torch>=2.6'.
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin
CLIENTS ?= runs/clients

.PHONY: help quickstart flickr test lint docs bench clients clean

help:
	@echo "make quickstart   a corpus from the built-in grammar, four real teachers, a small student, a report (under 10 minutes)"
	@echo "make flickr       the main job on real captions (needs CONSILIENCE_DATA)"
	@echo "make test         all tests, those of the real corpora where CONSILIENCE_DATA names them"
	@echo "make lint         ruff, mypy, import-linter, documentation"
	@echo "make docs         the documentation as a site in site/"
	@echo "make bench        benchmarks of speed and memory (needs CONSILIENCE_DATA)"
	@echo "make clients      what other libraries and servers make of an export (installs each; needs npm)"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: | $(BIN)/python
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	touch $@

# What running needs; tests and documentation need more.
$(VENV)/.run: pyproject.toml $(VENV)/.torch
	$(BIN)/python -m pip install --quiet -e '.[run]'
	touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.torch
	$(BIN)/python -m pip install --quiet -e '.[all,dev]'
	touch $@ $(VENV)/.run

quickstart: $(VENV)/.run
	$(BIN)/consilience run recipes/quickstart.toml --out runs/quickstart

flickr: $(VENV)/.run
	$(BIN)/consilience run recipes/flickr.toml --out runs/flickr

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate_cli.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

docs: $(VENV)/.dev
	$(BIN)/python docs/generate_cli.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.dev
	@for name in bank_stream gpa_speed align_memory encode_speed train_speed; do \
		echo "benchmarks/$$name.py"; $(BIN)/python "benchmarks/$$name.py" || exit 1; done

clients: $(VENV)/.dev
	$(BIN)/python benchmarks/client_table.py --cache $(CLIENTS) --write

clean:
	rm -rf $(VENV) site build dist
