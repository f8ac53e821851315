# `make setup` makes an environment, `.venv`, and installs the hooks. `make check` is the command while you work: what is
# fast, and the test files, pages and docstrings that differ from the branch main. `make everything` is what must hold
# before a change lands.
PYTHON ?= python
.PHONY: history sif site setup check everything changed lint types contracts matrix tests peers examples deep deep-laws units-laws soak fuzz bench memory docs structure format plug-ins

setup:
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --editable '.[dev]'
	.venv/bin/pre-commit install

check: lint contracts matrix
	mypy
	$(MAKE) changed

everything: lint types contracts matrix tests examples

changed:
	python -m pytest -n 2 -m "smoke and not deep" --ignore tests/spmd --ignore tests/test_docs.py
	@base=$$(git merge-base main HEAD); \
	files=$$(git diff --name-only --diff-filter=d $$base -- 'tests/**/test_*.py' 'tests/test_*.py'; \
	  git ls-files --others --exclude-standard -- 'tests/**/test_*.py'); \
	test -z "$$files" || python -m pytest -n 2 $$files
	@base=$$(git merge-base main HEAD); \
	names=$$(git diff --name-only --diff-filter=d $$base -- '*.md' 'fxad/*.py' | sed 's|.*/||' | sort -u | paste -sd '|'); \
	test -z "$$names" || python -m pytest tests/test_docs.py -k "$$(echo "$$names" | sed 's/|/ or /g')" || \
	test $$? = 5 # none was chosen

lint:
	ruff check .
	ruff format --check .

types:
	mypy
	python -m pytest -m pyright tests/test_pyright.py

contracts:
	lint-imports

matrix:
	python docs/generate.py --check

tests:
	python -m pytest -n 2

# Models of packages on JAX through from_jax: pip install -e '.[dev,peers]'
peers:
	FXAD_PEERS=required python -m pytest tests/interop/test_packages.py tests/interop/test_training.py

examples:
	python -m pytest -n 2 -m examples tests/test_examples.py

# The laws at 2,000 examples each, and the full lists of which ordinary runs test a sample.
deep:
	FXAD_PROFILE=deep python -m pytest -n 2 -m "not soak"

# The laws with programs split into separately compiled units: random ones, then those that the cost rule chooses.
units-laws:
	FXAD_UNITS=random python -m pytest -n 2 tests/laws tests/primitives
	FXAD_UNITS=auto python -m pytest -n 2 tests/laws tests/primitives

# The laws of derivatives and of memory, at 2,000 examples each, with one line of output for each law.
deep-laws:
	python -m tests.laws.deep

# The tests of copies from which one plug-in is deleted: four minutes.
plug-ins:
	python -m pytest -m plug_ins tests/test_plug_ins.py

# Threads, donation and memory under load: ten minutes, a million calls, 20,000 programs. Less:
# make soak FXAD_SOAK_SECONDS=60 FXAD_SOAK_CALLS=100000 FXAD_SOAK_PROGRAMS=1000
soak:
	python -m pytest -m soak tests/soak tests/api/test_threads.py tests/laws/test_depth.py

# Random programs in processes of their own, because XLA may end the process: half an hour for each thousand. Fewer:
# make fuzz FXAD_FUZZ_PROGRAMS=1000
fuzz:
	python -m pytest -m fuzz tests/fuzz

# The site, in build/site, to be read from the folder: pip install -e '.[site]'
site:
	NO_MKDOCS_2_WARNING=1 python -m mkdocs build --quiet

# The CUTEst problems: pip install jax sif2jax. FXAD_SIF=3/20 is one of 20 parts; an hour for all.
sif:
	python -m pytest -m deep tests/sparse/test_sif.py -s

# fxad compared with JAX: pip install -e '.[bench]'. For some modules only: make bench MODULES="models units"
bench:
	python -m benchmarks.run $(MODULES) --write docs/benchmarks.md

# A line for this commit in docs/benchmarks/history.csv; the site shows the table and a plot.
history:
	python -m benchmarks.history

# Memory against time, compared with JAX: the data, the page, and the plots of the tutorial.
# For some parts only: make memory PARTS="mlp loops"
memory:
	python -m benchmarks.memory $(PARTS)
	python docs/plots.py

# Generated files: the rule matrix, the outputs of the code in the tutorials, and the picture of a plan.
docs:
	python docs/overloads.py
	python docs/generate.py
	python docs/gpu.py
	python docs/outputs.py docs/tutorial*.md
	python docs/picture.py docs/tutorial-compiling.md docs/images/plan.svg

# Numbers about the structure of the package (sizes, imports); nothing is checked.
structure:
	python docs/structure.py

format:
	ruff check --fix .
	ruff format .
