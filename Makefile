# Everything a person types: `make tour`, `make test`, `make install`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: tour install test coverage check-style clean
tour: $(VENV)/.installed
	$(BIN)/clockhands tour --out runs/tour --overwrite

install: $(VENV)/.installed

# Editable, with the CPU build of torch pinned by constraints.txt (override: make install CONSTRAINTS=/dev/null).
CONSTRAINTS ?= constraints.txt
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) torch
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable .
	touch $@

$(VENV)/.test-installed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[test]'
	touch $@

check-style: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two processes, one thread each: threads that fight over two cores cost three times the time.
test: check-style
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# All tests, also those that train for minutes (several processes, the compiler, the whole tour), and what they cover.
coverage: $(VENV)/.test-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --slow --cov --cov-report=term

clean:
	rm -rf $(VENV) build dist *.egg-info
