PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: sweep test test-all check catalogue clean

sweep: $(VENV)/.ready
	$(BIN)/python -m ablate -m norm=ln,rms ffn=mlp,swiglu
	$(BIN)/python -m analysis

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 -m "not slow"

# All tests: those of report.html need a browser and those of LaTeX a TeX, which are installed where apt-get can, else
# these tests skip and say so.
test-all: $(VENV)/.all
	$(BIN)/python -m pytest -n 2 -rs

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

$(VENV)/.all: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,browser,wheel]'
	command -v chromedriver >/dev/null && (command -v chromium || command -v google-chrome) >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends chromium chromium-driver; } || \
	echo "the tests of report.html will skip; as root: apt-get install chromium chromium-driver"
	command -v pdflatex >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends texlive-latex-recommended lmodern; } || \
	echo "the tests of LaTeX will skip; as root: apt-get install texlive-latex-recommended lmodern"
	touch $@

catalogue: $(VENV)/.ready
	$(BIN)/python -m ablate.catalogue

clean:
	rm -rf $(VENV)
