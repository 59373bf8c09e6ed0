# Everything here needs only python3 (3.11 or newer) and make: each target makes its own environment.
#   make demo ARGS="--n 5000"     make test PYTEST="-k mlp -x"

PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin

.PHONY: help demo test lint test-all test-newest test-floor bench bench-check bench-gpu fuzz sweep docs notebooks clean

help:
	@echo "make demo         time symjac against JAX on five small programs"
	@echo "make test         run the tests on the JAX that $(PYTHON) installs"
	@echo "make lint         ruff and pyright"
	@echo "make test-all     run the tests on the oldest supported and on the newest JAX"
	@echo "make bench        time the workloads: symjac, JAX, written by hand (ARGS=\"--quick attention\")"
	@echo "make bench-check  compare the compiled programs with the recorded ones"
	@echo "make bench-gpu    time the headline workloads on an accelerator"
	@echo "make fuzz         compare random programs with JAX (ARGS=\"--seed 0 --n 1000\")"
	@echo "make sweep        compare every function of JAX's numerical interfaces"
	@echo "make docs         build the documentation into site/"
	@echo "make notebooks    run the notebooks and write their outputs (SYMJAC_SMALL=1 for small sizes)"
	@echo "make clean        remove the environments and the caches"

demo: .venv/.package
	@$(BIN)/python -m symjac $(ARGS)

test: .venv/.test
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST)

lint: .venv/.test .venv/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test-all:
	$(PYTHON) tools/test_all.py --workers $(WORKERS) --pytest="$(PYTEST)" floor newest

test-floor test-newest: test-%:
	$(PYTHON) tools/test_all.py --workers $(WORKERS) --pytest="$(PYTEST)" $*

bench: .venv/.test
	$(BIN)/python -m benchmarks.run $(ARGS)

bench-check: .venv/.test
	$(BIN)/python -m benchmarks.check $(ARGS)

bench-gpu: .venv/.test
	$(BIN)/python -m benchmarks.gpu

fuzz: .venv/.test
	$(BIN)/python -m tests.fuzz $(ARGS)

sweep: .venv/.test
	$(BIN)/python -m tests.sweep $(ARGS)

docs: .venv/.docs
	$(BIN)/mkdocs build --strict

notebooks: .venv/.notebooks
	$(BIN)/python tools/run_notebooks.py $(ARGS)

clean:
	rm -rf site .venv .venvs .pytest_cache .ruff_cache .hypothesis build dist
	find symjac tests tools -name __pycache__ -type d -exec rm -rf {} +

# The stamps: an environment is installed again when pyproject.toml changes.
.venv/.package: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("symjac needs Python 3.11 or newer: make PYTHON=..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/.test .venv/.lint .venv/.docs .venv/.notebooks: .venv/.%: .venv/.package
	$(BIN)/python -m pip install --quiet --group $*
	@touch $@
