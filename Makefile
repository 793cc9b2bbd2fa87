# The commands of this project. Each sets up all that it needs, in .venv, on a fresh machine.
#
#   make demo         the main job: train a transformer that no single device can hold
#   make test         format, lint, types, import rules, tests
#   make test-newest  the tests on the newest Python and JAX that are supported
#   make slow         the tests that take long, too
#   make zoo          train models of other packages, placed; writes the table of docs/zoo.md
#   make bench        every benchmark; each ends with one line of JSON
#   make bench-zoo    those of memory and step times, with every model of the zoo
#   make lint         the checks without the tests
#   make format       rewrite the code in the project's format
#   make clean        remove environments, builds and outputs
#
# PYTHON=/path/to/python uses that interpreter (3.11 or newer).
SHELL  := /bin/bash
VENV   ?= .venv
NEWEST ?= .venv-newest
ZOO    ?= .venv-zoo
BIN    := $(VENV)/bin
# Two test workers. PYTEST= for none, or for example PYTEST="-n 8 -x".
PYTEST ?= -n 2
say     = @printf '\n==> %s\n' $(1)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format slow zoo bench bench-zoo test-newest clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -15

setup: $(VENV)/.installed

# Warnings are ignored: setuptools has a long one for every editable install.
$(VENV)/.installed: pyproject.toml
	$(call say,'setting up $(VENV) (a few minutes the first time)')
	@python="$${PYTHON:-$$(.ci/find-python 3.11)}" && [ -n "$$python" ] && "$$python" --version \
	  && "$$python" -m venv $(VENV)
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/python examples/demo.py --output demo-output

test: lint
	$(call say,'tests')
	$(BIN)/python -m pytest $(PYTEST)

lint: setup
	$(call say,'format')
	$(BIN)/ruff format --check .
	$(call say,'lint')
	$(BIN)/ruff check .
	$(call say,'types')
	$(BIN)/mypy
	$(call say,'import rules')
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

slow: setup
	$(call say,'tests with the slow ones')
	$(BIN)/python -m pytest --slow $(PYTEST)

$(ZOO)/.installed: pyproject.toml
	$(call say,'setting up $(ZOO): the packages of the zoo at their pinned versions')
	@python="$${PYTHON:-$$(.ci/find-python 3.11)}" && [ -n "$$python" ] && "$$python" --version \
	  && "$$python" -m venv $(ZOO)
	PYTHONWARNINGS=ignore $(ZOO)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test,zoo]'
	@touch $@

zoo: $(ZOO)/.installed
	$(call say,'the zoo')
	$(ZOO)/bin/python -m tests.zoo.table

bench: setup
	@failed=; for script in benchmarks/*.py; do \
	  grep -q '__main__' "$$script" || continue; \
	  printf '\n==> %s\n' "$$script"; $(BIN)/python "$$script" || failed="$$failed $$script"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

bench-zoo: $(ZOO)/.installed
	$(call say,'memory and step times with the zoo')
	@failed=; for script in benchmarks/memory.py benchmarks/fidelity.py; do \
	  $(ZOO)/bin/python -W ignore "$$script" || failed="$$failed $$script"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

$(NEWEST)/.installed: pyproject.toml
	$(call say,'setting up $(NEWEST): Python 3.13 and jax 0.12')
	@python="$${PYTHON:-$$(.ci/find-python 3.13 exactly)}" && [ -n "$$python" ] \
	  && "$$python" --version && "$$python" -m venv $(NEWEST)
	PYTHONWARNINGS=ignore $(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --editable '.[test]' 'jax>=0.12,<0.13' 'jaxlib>=0.12,<0.13'
	@touch $@

test-newest: $(NEWEST)/.installed
	$(call say,'tests on the newest Python and JAX')
	@$(NEWEST)/bin/python -c 'import sys, jax; print("Python", sys.version.split()[0], "jax", jax.__version__)'
	$(NEWEST)/bin/python -m pytest $(PYTEST)

clean:
	rm -rf $(VENV) $(NEWEST) $(ZOO) build dist *.egg-info demo-output
