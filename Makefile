PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: sweep test test-all check catalogue clean

sweep: $(VENV)/.ready
	$(BIN)/python -m ablate -m norm=ln,rms ffn=mlp,swiglu
	$(BIN)/python -m analysis

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) test

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

catalogue: $(VENV)/.ready
	$(BIN)/python -m ablate.catalogue

clean:
	rm -rf $(VENV)
