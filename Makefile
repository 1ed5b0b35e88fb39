# Every target does its own set-up in .venv: `make demo` and `make test` work in
# a fresh clone. Another Python: `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test clean

help: ## Show these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

demo: $(READY) ## Train on the built-in task, translate, export to saved_models/
	$(BIN)/keras-transformer demo

test: $(READY) ## Check style and imports, then run the tests and the examples in docstrings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pytest -q

clean: ## Remove the environment and the caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made again when the dependencies change. TensorFlow comes without CUDA; for GPUs:
# `.venv/bin/pip install -e ".[gpu]"`.
$(READY): setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	    { echo "Python 3.10 to 3.13 is needed, name one: make PYTHON=python3.12. $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
	    { echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: sudo apt install python3-venv." >&2; exit 1; }
	@echo "Setting up $(VENV) (a few minutes, once) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e ".[dev]"
	@touch $@
