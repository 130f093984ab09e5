# `make demo` shows a language model getting faster; `make test` checks the project. Both set everything up.
#
#   PYTHON=python3.12   another interpreter (3.11 or newer)
#   TORCH='torch==...'  another build of torch; README says how to choose the CUDA or the CPU build

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
CXX    ?= g++
MODEL  ?= preset:qwen3-0.6b
OUT    ?= runs/demo
RUNGS  ?= sdpa,eager,inductor-max
ARGS   ?=

PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test bench lint clean check
.DELETE_ON_ERROR:

demo: $(VENV)/.base
	$(VENV)/bin/kernelgraft optimize-and-patch "$(MODEL)" --batch 1 --batch 4 --rungs "$(RUNGS)" --out "$(OUT)" $(ARGS)

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(ARGS)

bench: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest benchmarks --benchmark-only $(ARGS)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

clean:
	rm -rf "$(VENV)" build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .benchmarks

check:
	@command -v "$(PYTHON)" >/dev/null || { echo "make: $(PYTHON) not found; install Python 3.11 or newer, or name one with PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than Python 3.11; name a newer one with PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) cannot make virtual environments; install its venv package (Debian: apt install python3-venv)" >&2; exit 1; }
	@command -v $(firstword $(CXX)) clang++ >/dev/null || { echo "make: no C++ compiler ($(CXX)); install one (Debian: apt install g++) or name one with CXX=..." >&2; exit 1; }

$(VENV)/.base: pyproject.toml | check
	@test -x "$(VENV)/bin/python" || { echo "setting up $(VENV)"; "$(PYTHON)" -m venv "$(VENV)"; }
	@echo "installing $(TORCH)"
	@$(PIP) "$(TORCH)"
	@# compat: a path entry, so that `import kernelgraft` works beside a clone's folder of the same name, too
	@echo "installing kernelgraft"
	@$(PIP) --config-settings editable_mode=compat --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "installing the test tools"
	@$(PIP) --config-settings editable_mode=compat --editable ".[dev]"
	@touch $@
