# Two commands do everything: `make demo` and `make test`. Each sets up what it needs on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FLOWER := $(VENV)/flower
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test test-network lint bench federation clean

setup: $(VENV)/.core

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	@touch $@

$(VENV)/.test: $(VENV)/.core
	$(INSTALL) -e ".[test]"
	@touch $@

$(VENV)/.bench: $(VENV)/.core
	$(INSTALL) -e ".[bench]"
	@touch $@

# An environment of its own: Flower wants older versions of these four than the rest does.
$(FLOWER)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(FLOWER)
	grep -vE '^(packaging|protobuf|rich|typer)==' constraints.txt > $(FLOWER)/constraints.txt
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check -c $(FLOWER)/constraints.txt -e ".[flower,test]"
	@touch $@

demo: $(VENV)/.core  ## a comparison on handwritten digits: a table and an HTML report
	$(BIN)/fedax demo

test: $(VENV)/.test  ## lint, types and all tests
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-network: $(FLOWER)/.done  ## all that needs Flower: federations of real processes, faults in every round
	FEDAX_NETWORK=1 $(FLOWER)/bin/python -m pytest tests/test_flower*.py

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench  ## speed against hand-tuned JAX, PyTorch and peers, side by side; set FEDAX_DATA for real data
	$(BIN)/python benchmarks/speed.py

federation: $(FLOWER)/.done  ## three hospitals and a server on this machine, over TLS: a model, and its report
	$(FLOWER)/bin/python examples/hospitals/federation.py

clean:
	rm -rf $(VENV) runs
