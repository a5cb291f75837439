# make demo   a virtual environment in .venv, a build, the default model, three answers
# make serve  the same virtual environment and the server's packages; the default model on http://127.0.0.1:8000
# make test   the same with the test tools; lint, types, tests
# make bench  throughput, latency and startup of the default model
# make clean  takes away what these made (the model cache stays)
#
# Needs python3 (3.11 or later), make and a C++ compiler.

PYTHON ?= python3
MODEL ?= smollm2
BIN := .venv/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find csrc -type f)
# Without byte code: Python writes what is imported, and the rest would be 40 MB.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# However CMake builds: on all cores that this process may use.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

.PHONY: demo serve test bench clean
.DEFAULT_GOAL := demo

demo: .venv/installed .venv/pulled-$(MODEL)
	@$(BIN)/python examples/demo.py $(MODEL)

serve: .venv/installed-server .venv/pulled-$(MODEL)
	@exec $(BIN)/octavo serve $(MODEL)

test: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

bench: .venv/installed .venv/pulled-$(MODEL)
	$(BIN)/octavo bench throughput $(MODEL)
	$(BIN)/octavo bench latency $(MODEL)
	$(BIN)/octavo bench startup $(MODEL)

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find octavo tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Octavo needs Python 3.11 or later; $$($(PYTHON) --version) is too old. Try: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip uninstall --quiet --yes setuptools 2>/dev/null || true  # Python 3.11 puts it there; nothing needs it

# A stamp is older than the sources when the build is.
.venv/installed: .venv/bin/python $(SOURCES)
	@echo "Building Octavo into .venv ..."
	$(PIP_INSTALL) -e .
	@touch $@

.venv/installed-server: .venv/bin/python $(SOURCES)
	@echo "Building Octavo and its server into .venv ..."
	$(PIP_INSTALL) -e '.[server]'
	@touch $@ .venv/installed

.venv/installed-test: .venv/bin/python $(SOURCES)
	@echo "Building Octavo and its test tools into .venv ..."
	$(PIP_INSTALL) -e '.[test]'
	@touch $@ .venv/installed-server .venv/installed

.venv/pulled-%: | .venv/installed
	$(BIN)/octavo pull $*
	@touch $@
