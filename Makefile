# Every target does its own set-up in .venv: `make demo` and `make test` work in
# a fresh clone. Another Python: `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-faults figures clean

help: ## Show these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

demo: $(READY) ## Train on the built-in task, translate, export to saved_models/
	$(BIN)/keras-transformer demo

# Two workers: most tests trace, and tracing keeps no more than one core busy.
test: $(READY) ## Check style and imports, then run the tests and the examples in docstrings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n 2 --dist loadfile

figures: $(READY) ## Run the tutorials in full and draw docs/figures again
	@set -e; drawn=$$(mktemp -d); for tutorial in tutorials/*.py; do \
	    echo $$tutorial; TUTORIAL_FOLDER=$$drawn $(BIN)/python $$tutorial > $$drawn/log; done; \
	cd docs/figures; for figure in *.png; do cp $$drawn/$$figure .; done

test-faults: $(READY) ## Kill a training twenty times, and see that it ends as if never killed
	$(BIN)/pytest -q -m faults tests

clean: ## Remove the environment and the caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made again when the dependencies change. TensorFlow comes without CUDA; for GPUs:
# `.venv/bin/pip install -e ".[gpu]"`.
$(READY): setup.py pyproject.toml
	@command -v $(PYTHON) > /dev/null || \
	    { echo "There is no $(PYTHON). Name a Python 3.10 to 3.13: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	    { echo "$(PYTHON) is $$($(PYTHON) --version). Name a Python 3.10 to 3.13: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
	    { echo "$(PYTHON) cannot make virtual environments. On Debian or Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV): this takes a few minutes, once."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e ".[dev]"
	@touch $@
