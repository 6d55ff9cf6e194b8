PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# pip would compile every module of torch, which takes two minutes; Python compiles those that are imported.
PIP = --quiet --disable-pip-version-check --no-compile

# Or each of the hundred processes that tests start would compile all of our modules anew, where this is set.
export PYTHONDONTWRITEBYTECODE =

.PHONY: sweep studies test test-all check mutants catalogue figures pictures docs docs-links records gpu clean

sweep: $(VENV)/.ready
	$(BIN)/python -m ablate -m norm=ln,rms ffn=mlp,swiglu
	$(BIN)/python -m analysis

# Every study of experiments/, or what is missing of it: make studies STUDIES="batch_norm tier=gpu"
studies: $(VENV)/.ready
	$(BIN)/python tools/train_studies.py $(STUDIES)

# glibc returns the memory of a freed tensor to the system and asks for it again: a few percent of the tests' time.
test test-all: export MALLOC_MMAP_THRESHOLD_ = 1073741824
test test-all: export MALLOC_TRIM_THRESHOLD_ = 2147483648

# A file's tests stay on one worker: what its fixtures make is made once.
test: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

# All tests: those of report.html need a browser, of LaTeX a TeX, of clusters a Slurm and bindfs, which are installed
# where apt-get can, else these tests skip and say so.
test-all: $(VENV)/.all
	$(BIN)/python -m pytest -n 2 --dist loadfile -rs

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) test

# How many small random mistakes the tests of a package catch: make mutants PACKAGE="cli formatting" N=40
mutants: $(VENV)/.ready
	$(BIN)/python -m pip install $(PIP) -c constraints.txt -e '.[mutation]'
	nice -n 19 $(BIN)/python tools/mutation.py $(PACKAGE) -n $(or $(N),40)

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP) -c constraints.txt -e '.[test]'
	touch $@

# What tests need that pip does not have: how it is found, its packages of Debian, whose tests skip without.
define installed
{ $(1); } >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends $(2); } || \
	echo "the tests of $(3) will skip; as root: apt-get install $(2)"
endef

# With a database for Slurm's accounting: none of the programs has to run as a service.
CLUSTERS = slurm-wlm munge slurmdbd mariadb-server-core mariadb-client-core bindfs

$(VENV)/.all: $(VENV)/.ready
	$(BIN)/python -m pip install $(PIP) -c constraints.txt -e '.[test,browser,notebook,wheel,docs]'
	$(BIN)/python -m pip install $(PIP) -c constraints.txt -e '.[joblib,slurm,ray]' || \
		echo "the tests of launchers will skip: there is no joblib, submitit or Ray for this Python"
	$(BIN)/python -m pip install $(PIP) -c constraints.txt -e '.[fla]' || \
		echo "the tests of flash-linear-attention will skip: there is no fla-core or Triton for this Python"
	$(call installed,command -v chromedriver && { command -v chromium || command -v google-chrome; },chromium chromium-driver,report.html)
	$(call installed,command -v pdflatex,texlive-latex-recommended lmodern,LaTeX)
	$(call installed,command -v slurmctld && command -v slurmdbd && command -v mariadb-install-db && command -v bindfs,$(CLUSTERS),Slurm and of two hosts)
	touch $@

catalogue: $(VENV)/.ready
	$(BIN)/python tools/write_catalogue.py

# Figures, tables and pages of the committed studies, from experiments/results/ alone; what is up to date stays.
figures: $(VENV)/.ready
	PYTHONPATH=tools $(BIN)/python -m gallery

# Every picture of README.md and docs/, from docs/example; report.png needs a browser, live.svg a minute of training.
pictures: $(VENV)/.ready
	$(BIN)/python tools/pictures.py

# The site, build/docs/html: docs/, the findings and the docstrings. A broken link, anchor or picture is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -c docs/site -d build/docs/doctrees . build/docs/html

# Whether the addresses answer that the pages link to.
docs-links: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -b linkcheck -c docs/site -d build/docs/doctrees . build/docs/links

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install $(PIP) -c constraints.txt -e '.[docs]'
	touch $@

# What tests/test_recorded.py and tests/test_recorded_commands.py compare with, written anew where numbers or
# configurations are meant to change.
records: $(VENV)/.ready
	PYTHONPATH=tests $(BIN)/python tests/helpers/recorded_commands.py
	PYTHONPATH=tests $(BIN)/python tests/helpers/tiny_runs.py
	PYTHONPATH=tests $(BIN)/python tests/helpers/shown_studies.py
	PYTHONPATH=tests $(BIN)/python tests/helpers/committed_effects.py

# Everything that only a GPU can show, in nine minutes: in whatever environment has torch with CUDA.
gpu:
	$(PYTHON) benchmarks/gpu.py

clean:
	rm -rf $(VENV)
