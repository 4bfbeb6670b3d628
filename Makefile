# Everything a person types:
#   make tour           train the small translator and write its page
#   make explore        write the page in which the site's models run; trains nothing
#   make explorer       build the script of that page from explorer/ and run its tests: needs Node and Chromium
#   make quick          the tests of what differs from main, and a few laws: at most 90 seconds
#   make test           style, types and all tests: what runs on every change
#   make docs        the site, in site/: opens from files, trains nothing; a broken link stops it (part of `make test`)
#   make check-shapes   the laws, with the annotated shapes of all tensors checked at run time (part of `make test`)
#   make install, test-elsewhere, test-lowest, mutants, coverage, clean: see below
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

# Compiled files are kept: the tests start many processes, each of which would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: tour explore explorer install quick test docs check-shapes test-elsewhere test-lowest test-core-lowest mutants coverage check-style clean
tour: $(VENV)/.installed
	$(BIN)/clockhands tour --out runs/tour --overwrite

explore: $(VENV)/.installed
	$(BIN)/python docs/make_models.py --page explore.html

explorer: $(VENV)/.test-installed
	cd explorer && npm ci && npm run build && npm test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/exploring

install: $(VENV)/.installed

# Editable, with the CPU build of torch pinned by constraints.txt (override: make install CONSTRAINTS=/dev/null). A module
# is compiled when it is first imported: most of those that come with torch and transformers never are.
CONSTRAINTS ?= constraints.txt
INSTALL = $(BIN)/python -m pip install --quiet --no-compile --constraint $(CONSTRAINTS)
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[workbench]'
	touch $@

$(VENV)/.test-installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[test,docs]'
	touch $(VENV)/.installed $@

check-style: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

quick: $(VENV)/.test-installed
	OMP_NUM_THREADS=1 $(BIN)/python tests/quick.py

# Two processes, one thread each: threads that fight over two cores cost three times the time. The type checker, the site
# and the tests with shapes, one process each, run beside them, so that no core waits; what they print stands together.
test: $(VENV)/.test-installed
	$(MAKE) check-style & style=$$!; \
	$(MAKE) $(VENV)/.compiled || exit 1; \
	$(MAKE) --jobs 2 --output-sync docs check-shapes & beside=$$!; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --shaped without; tests=$$?; \
	wait $$style || { echo 'Style or types failed: see above.'; exit 1; }; \
	wait $$beside || { echo 'The site or the tests with shapes failed: see above.'; exit 1; }; \
	exit $$tests

# Imports every module once: four processes that start together would compile the same files four times.
$(VENV)/.compiled: $(VENV)/.test-installed
	$(BIN)/python -c "import importlib, pkgutil, clockhands; \
	[importlib.import_module(found.name) for found in pkgutil.walk_packages(clockhands.__path__, 'clockhands.') if not found.name.endswith('__main__')]"
	touch $@

# Written from docs/ and from the code, then built; it works offline. The warning is about a version that is not here.
docs: $(VENV)/.test-installed
	$(BIN)/python docs/make_site.py build/site-sources
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The tests of tests/shaped.py, with every annotation checked while they run, which doubles what they take; `make test`
# runs them here alone. `CHECK_SHAPES=1 pytest ...` checks shapes in any others.
check-shapes: $(VENV)/.test-installed
	CHECK_SHAPES=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --shaped only

# The tests as on a processor without AVX-512, and with another number of threads: none may assert what either decides.
test-elsewhere: $(VENV)/.test-installed
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 CT2_FORCE_CPU_ISA=AVX2 OMP_NUM_THREADS=2 $(BIN)/python -m pytest -n 1

# The tests with the lowest versions that pyproject.toml declares, but torch as constraints.txt has it. What only tests
# need (`[test]`) is as new as it can be beside them: without it whole files of tests are not collected.
LOWEST := $(VENV)-lowest
test-lowest: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) -c "import tomllib; print(*(need.replace('>=', '==') for need in tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['workbench'] if not need.startswith('torch>')), sep='\n')" > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --constraint $(CONSTRAINTS) torch
	$(LOWEST)/bin/python -m pip install --quiet --constraint $(CONSTRAINTS) --requirement $(LOWEST)/lowest.txt --editable '.[test,docs]'
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n 2 --dist worksteal

# The core with the lowest versions that it declares, PyTorch among them (with CUDA, some gigabytes): what the tests of
# schemes, attention and positions need besides is as new as it can be.
CORE := $(VENV)-core
test-core-lowest:
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python -m pip install --quiet torch==2.6.0 numpy==1.26.4 jaxtyping==0.3.0 pytest pytest-cov hypothesis beartype transformers accelerate scipy x-transformers rotary-embedding-torch positional-encodings fla-core gguf
	PYTHONPATH=src OMP_NUM_THREADS=1 $(CORE)/bin/python -m pytest -q tests/test_positions.py tests/schemes tests/attention --ignore tests/schemes/bias/test_sandwich.py

# Changes of one place each that no test notices: in the files that differ from main, or
# make mutants SAMPLE=300 SEED=0, or make mutants FILES=src/clockhands/schemes/bias/fire.py. What was stopped goes on.
mutants: $(VENV)/.test-installed
	$(INSTALL) --editable '.[mutants]'
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutants.py $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(FILES)

# All tests, also those that train for minutes (several processes, the compiler, the whole tour), and what they cover.
coverage: $(VENV)/.test-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --slow --cov --cov-report=term

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-core .mutants build dist site *.egg-info
