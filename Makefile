# Every target sets up .venv if necessary: `make demo` and `make test` work in a
# fresh clone. To use another Python: `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-backends test-interop test-package test-slow test-notebooks figures notebooks docs clean

help: ## Show these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: $(READY) ## Train on the built-in task, translate, export to saved_models/
	$(BIN)/keras-transformer demo

# Three workers suit two cores: tracing uses one core at most, and some tests wait for
# other processes. Workers take files in the order of tests/conftest.py.
test: $(READY) ## Check style, imports and types, then run the tests and the examples in docstrings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder

BACKENDS ?= torch jax
BACKEND_TESTS := tests/test_backend_numbers.py tests/kernels tests/layers tests/decoding tests/models

# Tests layers, decoding and models without TensorFlow, and compares their numbers with
# those on TensorFlow. JAX compiles each operation for each shape, which takes long.
test-backends: $(READY) $(BACKENDS:%=.venv-%/.ready) ## Test layers, decoding and models on JAX and on PyTorch
	PYTHONPATH=tests $(BIN)/python tests/backend_numbers.py $(VENV)/numbers.npz
	@set -e; for backend in $(BACKENDS); do \
	    echo "Keras on $$backend:"; \
	    KERAS_BACKEND=$$backend KERAS_TRANSFORMER_NUMBERS=$(VENV)/numbers.npz \
	    .venv-$$backend/bin/python -m pytest -q --no-header $(BACKEND_TESTS); done

# With the originals on the machine: what is kept in tests/interop/fixtures is written
# anew by them, and they read what is exported for them.
test-interop: $(READY) .venv-originals/.ready ## Test other systems' models beside PyTorch and transformers
	KERAS_TRANSFORMER_ORIGINALS=$(CURDIR)/.venv-originals/bin/python $(BIN)/pytest -q -m "" tests/interop

# After a change of one tutorial: `make figures TUTORIALS=tutorials/03_translator.py`.
TUTORIALS ?= tutorials/*.py

figures: $(READY) ## Run the tutorials in full, and record what they draw and print in docs/
	$(BIN)/python docs/tutorial_notebooks.py record $(TUTORIALS)

notebooks: $(READY) ## Make notebooks/ of the tutorials
	$(BIN)/python docs/tutorial_notebooks.py make

test-notebooks: $(READY) ## Run the notebooks in a short form
	TUTORIAL_EPOCHS=1 TUTORIAL_PHRASES=1000 TUTORIAL_DOCUMENTS=20 TUTORIAL_TOPICS=12 \
	    $(BIN)/python docs/tutorial_notebooks.py run notebooks/*.ipynb

# Strictly: a broken link, a missing anchor or an undocumented name ends it.
docs: $(READY) ## Build the site in build/site
	$(BIN)/python docs/pages.py build/pages
	$(BIN)/zensical build --clean --strict

# As a user has it: installed from the wheel, with nothing else, outside of the checkout.
test-package: $(READY) ## Build the sdist and the wheel, and run the demo in a bare environment
	$(BIN)/pytest -q -m "" tests/test_built_package.py

test-slow: $(READY) ## Run the slow tests, which kill trainings and workers and resume them
	$(BIN)/pytest -q -m slow tests

clean: ## Remove the environment and the caches
	rm -rf $(VENV) .venv-jax .venv-torch .venv-originals .cache build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Created again when the dependencies change. TensorFlow comes without CUDA; for GPUs:
# `.venv/bin/pip install -e ".[gpu]"`.
$(READY): setup.py pyproject.toml
	@command -v $(PYTHON) > /dev/null || \
	    { echo "$(PYTHON) is not installed. Pass a Python 3.10 to 3.13: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	    { echo "$(PYTHON) is $$($(PYTHON) --version). Pass a Python 3.10 to 3.13: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
	    { echo "$(PYTHON) cannot make virtual environments. On Debian or Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV): this takes a few minutes, once."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e ".[dev]"
	@touch $@

.venv-originals/.ready: Makefile
	@echo "Setting up .venv-originals: this takes a few minutes, once."
	@$(PYTHON) -m venv --clear .venv-originals
	@.venv-originals/bin/python -m pip install -qq --disable-pip-version-check 'torch>=2.9' \
	    'transformers>=5.0' 'sentencepiece>=0.2.2' 'protobuf>=5'
	@touch $@

# Without TensorFlow, so that importing it by mistake fails.
.venv-%/.ready: setup.py pyproject.toml
	@echo "Setting up .venv-$*: this takes a few minutes, once."
	@$(PYTHON) -m venv --clear .venv-$*
	@.venv-$*/bin/python -m pip install -qq --disable-pip-version-check $* 'keras>=3.12.4' \
	    'pytest>=8.4' 'hypothesis>=6.100' 'babel>=2.16' 'sentencepiece>=0.2.2' 'scikit-learn>=1.5'
	@touch $@
