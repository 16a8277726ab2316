# make setup   virtual environment, packages and the default model; skipped while nothing has changed
# make demo    an answer from the default model, then one from a server, by curl and by openai-python
# make page    a server with a page to chat on, which shows the radix tree of the chat
# make test    the tests; make check: format, lint, types; make test-nightly: the long random runs too
# make test-mutations  plants faults in a copy of cache and scheduler; the tests must notice each
# make docs    the documentation as a site, in build/site
# make test-ui  the page of the server in Chromium, if it is installed
# make test-clients  real clients (openai-python, LangChain ...) against a live server; CLIENTS='openai_python or llm_cli' picks some
#
# Another build of torch, for instance one for the GPU at hand:
#   make setup TORCH=torch==2.13.0 TORCH_FLAGS='--index-url ADDRESS'
# MINISGL_BUILD_ISA says which C++ kernels it compiles; without it those that this machine takes (docs/architecture.md).

# --no-compile: Python compiles what is used when it is used; most of torch and transformers never is. Setup ends with a
# first start, which leaves that behind, in containers too, where Python is often told to write nothing: half of a start.
PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_FLAGS ?=
# Runs the kernels for GPUs where there is none, in the tests; builds of torch for CUDA bring their own.
TRITON ?= triton==3.6.0
# Whole files of tests go to as many processes as there are cores, but each takes a gigabyte of memory.
AT_ONCE ?= --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
PIP_FLAGS ?= --no-compile --progress-bar off

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done

.DEFAULT_GOAL := help
.PHONY: help setup triton demo page test test-nightly test-mutations test-ui test-clients check docs clean

help:
	@grep '^#' Makefile

setup: $(STAMP)

# torch goes first: left to the requirements of other packages, pip would take whatever build is the largest.
$(STAMP): pyproject.toml hatch_build.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo '1 of 4: torch, the largest part (about a minute; longer over a slow line, or with CUDA)'
	$(BIN)/python scripts/pip-install $(PIP_FLAGS) $(TORCH_FLAGS) '$(TORCH)'
	@echo '2 of 4: the other packages, and the C++ kernels if there is a compiler (one to two and a half minutes)'
	$(BIN)/python scripts/pip-install $(PIP_FLAGS) -c constraints.txt -e '.[server,otel,plot,docs,dev]'
	@echo '3 of 4: the default model (some 100 MB, unless it is there)'
	$(BIN)/minisgl pull smollm2
	@echo '4 of 4: a first start (some seconds)'
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/minisgl generate --max-tokens 2 Hello >/dev/null
	touch $@

# No failure: there are no wheels for some platforms, and without it the tests of those kernels are left out.
triton: setup
	-$(BIN)/python -c 'import triton' 2>/dev/null || $(BIN)/python scripts/pip-install $(PIP_FLAGS) '$(TRITON)'

demo: setup
	$(BIN)/minisgl generate --chat --max-tokens 64 'What is the capital of France?'
	scripts/demo

page: setup
	$(BIN)/minisgl serve --ui-show-text

test: setup triton
	scripts/test $(AT_ONCE)

test-nightly: setup triton
	scripts/test $(AT_ONCE)
	scripts/test $(AT_ONCE) -m nightly

test-mutations: setup
	$(BIN)/python scripts/test-mutations

test-ui: setup
	scripts/test $(AT_ONCE) -m browser tests/ui

test-clients: setup
	scripts/test -m clients tests/clients $(if $(CLIENTS),-k '$(CLIENTS)')

check: setup
	scripts/check

docs: setup
	scripts/docs

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist minisgl/kernel/compiled
	find minisgl tests -name __pycache__ -type d -prune -exec rm -rf {} +
