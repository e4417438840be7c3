# Two commands do everything: `make demo` and `make test`. Each sets up what it needs on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo dist patients test test-fast test-optimised test-network lint docs bench federation clean

setup: $(VENV)/.core

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e ".[tables,download]"
	@touch $@

$(VENV)/.test: $(VENV)/.core
	$(INSTALL) -e ".[test]"
	@touch $@

$(VENV)/.bench: $(VENV)/.core
	$(INSTALL) -e ".[bench]"
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(INSTALL) -e ".[docs]"
	@touch $@

$(VENV)/.flower: $(VENV)/.core
	$(INSTALL) -e ".[flower]"
	@touch $@

demo: $(VENV)/.core  ## a comparison on handwritten digits: a table and an HTML report
	$(BIN)/fedax demo

test: $(VENV)/.test  ## lint, types and all tests
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 15

test-fast: $(VENV)/.test  ## for a developer's loop: all tests but those that take long, in about two minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal --fast

test-optimised: $(VENV)/.test  ## all tests on programs that are compiled as users have them: half an hour or more
	FEDAX_OPTIMISED=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-network: $(VENV)/.test  ## all that needs Flower, the long ones too: federations of real processes, faults in every round
	FEDAX_NETWORK=1 $(BIN)/python -m pytest tests/test_flower*.py

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the documentation as a site: site/index.html, which needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

bench: $(VENV)/.bench  ## speed against hand-tuned JAX and PyTorch, side by side; set FEDAX_DATA for real data
	$(BIN)/python benchmarks/speed.py

patients: $(VENV)/.core  ## twelve hospitals' table: a sparse model, personal models, predictions of new patients
	$(BIN)/python examples/patients/story.py

federation: $(VENV)/.flower  ## three hospitals and a server on this machine, over TLS: a model, and its report
	$(BIN)/python examples/hospitals/federation.py

dist: $(VENV)/.core  ## wheel and sdist in dist/, checked, and the demo run from the wheel in an environment of its own
	rm -rf dist build $(VENV)/dist
	$(INSTALL) build twine
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(VENV)/dist
	$(VENV)/dist/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd $(VENV)/dist && bin/fedax demo --quiet --out demo-run

clean:
	rm -rf $(VENV) .pytest_cache runs site
