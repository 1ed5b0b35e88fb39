# Every target sets up .venv if necessary: `make demo` and `make test` work in a
# fresh clone. To use another Python: `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
USER_READY := $(VENV)/.user-ready
READY := $(VENV)/.ready
SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c

.DEFAULT_GOAL := help
.PHONY: help demo lint test test-all test-backends test-interop test-package \
    test-notebooks figures notebooks docs dist clean

help: ## Show these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: $(USER_READY) ## Train on the built-in task, translate, export to saved_models/
	$(BIN)/keras-transformer demo

lint: $(READY) ## Check style, imports between the parts, and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# Three workers suit two cores: tracing uses one core at most, and some tests wait for
# other processes. Workers take files in the order of tests/conftest.py.
PYTEST := $(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder

test: $(READY) ## Run the tests that every change must pass, and the examples in docstrings
	$(PYTEST)

test-all: $(READY) ## Run all tests, slow ones too, then those of layers and models on JAX and PyTorch
	$(PYTEST) -m ""
	$(MAKE) test-backends

BACKENDS ?= torch jax
BACKEND_TESTS := tests/test_backend_numbers.py tests/kernels tests/layers tests/decoding tests/models \
    tests/interop/test_keras_hub.py tests/training/test_layouts.py

# Tests layers, decoding and models without TensorFlow, and compares their numbers with
# those on TensorFlow. JAX compiles each operation for each shape, which takes long.
test-backends: $(READY) $(BACKENDS:%=.venv-%/.ready) ## Test layers, decoding and models on JAX and on PyTorch
	PYTHONPATH=tests $(BIN)/python tests/backend_numbers.py $(VENV)/numbers.npz
	@for backend in $(BACKENDS); do \
	    echo "Keras on $$backend:"; \
	    KERAS_BACKEND=$$backend KERAS_TRANSFORMER_NUMBERS=$(VENV)/numbers.npz \
	    .venv-$$backend/bin/python -m pytest -q --no-header $(BACKEND_TESTS); done

# With the originals on the machine: what is kept in tests/interop/fixtures is written
# anew by them, and they read what is exported for them.
test-interop: $(READY) .venv-originals/.ready ## Test other systems' models beside PyTorch and transformers
	KERAS_TRANSFORMER_ORIGINALS=$(CURDIR)/.venv-originals/bin/python $(BIN)/pytest -q -m "" tests/interop

# As a user has it: installed from the wheel, with nothing else, outside of the checkout.
test-package: $(READY) ## Build the sdist and the wheel, and run the demo in a bare environment
	$(BIN)/pytest -q -m "" tests/test_built_package.py

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
	$(BIN)/zensical build --clean --strict -f build/pages.yml

dist: $(READY) ## Build the sdist and the wheel in dist/
	$(BIN)/python -m build

clean: ## Remove the environments and the caches
	rm -rf $(VENV) .venv-jax .venv-torch .venv-originals .cache build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Prints the name of each package as pip comes to it: TensorFlow alone takes minutes.
PIP = $(1)/bin/python -m pip install --disable-pip-version-check --progress-bar off \
    $(2) | sed -un 's/^ *Collecting \([^ (]*\).*/  \1/p'

# Created again when the dependencies change. TensorFlow comes without CUDA; for GPUs:
# `.venv/bin/pip install -e ".[gpu]"`.
$(USER_READY): setup.py
	@command -v $(PYTHON) > /dev/null || \
	    { echo "$(PYTHON) is not installed. Pass a Python 3.10 to 3.13: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	    { echo "$(PYTHON) is $$($(PYTHON) --version). Pass a Python 3.10 to 3.13: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
	    { echo "$(PYTHON) cannot make virtual environments. On Debian or Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV) with what users install, TensorFlow among it. This takes a minute or two, once:"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(call PIP,$(VENV),-e .)
	@touch $@

$(READY): $(USER_READY) pyproject.toml
	@echo "Adding the developers' tools to $(VENV):"
	@$(call PIP,$(VENV),-e ".[dev]")
	@touch $@

.venv-originals/.ready: Makefile
	@echo "Setting up .venv-originals with PyTorch and transformers, once:"
	@$(PYTHON) -m venv --clear .venv-originals
	@$(call PIP,.venv-originals,'torch>=2.9' 'transformers>=5.0' 'sentencepiece>=0.2.3' 'protobuf>=5')
	@touch $@

# Without TensorFlow, so that importing it by mistake fails.
.venv-%/.ready: setup.py pyproject.toml
	@echo "Setting up .venv-$*, without TensorFlow, once:"
	@$(PYTHON) -m venv --clear .venv-$*
	@$(call PIP,.venv-$*,$* 'keras>=3.12.4' 'pytest>=8.4' 'hypothesis>=6.100' 'babel>=2.16' \
	    'sentencepiece>=0.2.3' 'scikit-learn>=1.5' 'kagglehub>=1.0' 'tokenizers>=0.22' 'regex')
	@$(call PIP,.venv-$*,--no-deps keras-hub)  # it names TensorFlow Text
	@touch $@
