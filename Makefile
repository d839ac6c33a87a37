# Every target makes the environment it needs when that is missing or out of date; nothing has to be installed by hand.
PYTHON ?= python3
VENV ?= .venv
BENCH_VENV ?= .venv-bench
WORKERS ?= 2
MINUTES ?= 60
SECONDS_EACH ?= 60

BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
BENCH_STAMP := $(BENCH_VENV)/.complete
DEV_EXTRAS := demo,dev,vision,text
BENCH_EXTRAS := peers,train,text
PINS := pyproject.toml constraints.txt
# One thread per test worker: more would only fight for the same cores.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# A finished environment carries a stamp, written last. Without it (never made, or interrupted) we start afresh.
define environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "constraints.txt needs Python 3.11 or newer: make PYTHON=...")'
	test -f $(1)/.complete || $(PYTHON) -m venv --clear $(1)
	rm -f $(1)/.complete*
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(2)]'
	touch $(1)/.complete
endef

.DEFAULT_GOAL := help
.PHONY: help demo test test-cpus test-all coverage lint bench golden faults soak fuzz mutants docs clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: $(STAMP) ## train by cross entropy and by the metric itself on bundled data; writes report.html
	$(BIN)/rankwise demo

test: lint ## lint, types, import contract, doctests, tests
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
	$(BIN)/python scripts/test_cpus.py --quick

test-cpus: $(STAMP) ## the numeric tests as CPUs with other instructions, and other numbers of threads, run them
	$(BIN)/python scripts/test_cpus.py --workers $(WORKERS)

test-all: lint ## the same with the slow tests and those on real data
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m ''

coverage: $(STAMP) ## branch coverage of the tests: by package, and each module below 85 %
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report=json --cov-report=xml
	$(BIN)/python scripts/coverage_table.py coverage.json

lint: $(STAMP) ## ruff, mypy and the import contract only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(BENCH_STAMP) ## speed and memory against other libraries, in an environment of its own
	$(BENCH_VENV)/bin/python -m benchmarks.speed

golden: $(STAMP) ## train every kind at the commit BASE and as it is now: is anything else trained? (a minute)
	test -n "$(BASE)" || (echo 'expected the commit to compare with: make golden BASE=...' && exit 1)
	rm -rf golden && mkdir golden && git archive --prefix=golden/base/ $(BASE) src | tar -x
	PYTHONPATH=$(CURDIR)/golden/base/src $(ONE_THREAD) $(BIN)/python scripts/golden.py run golden/before
	PYTHONPATH=$(CURDIR)/src $(ONE_THREAD) $(BIN)/python scripts/golden.py run golden/after
	$(BIN)/python scripts/golden.py compare golden/before golden/after

faults: $(STAMP) ## kill, starve and damage trainings: what is lost, what is said (20 minutes)
	$(ONE_THREAD) $(BIN)/python -m benchmarks.trust.faults

soak: $(STAMP) ## train for an hour with restarts: is anything lost, does memory grow? (MINUTES=60)
	$(ONE_THREAD) $(BIN)/python -m benchmarks.trust.soak --minutes $(MINUTES) --out soak.json
	$(ONE_THREAD) $(BIN)/python -m benchmarks.trust.drift

fuzz: $(STAMP) ## search for files that break the readers, guided by coverage (SECONDS_EACH=60)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt atheris
	for target in text tables containers recipes; do \
		$(ONE_THREAD) $(BIN)/python fuzz/$$target.py -max_total_time=$(SECONDS_EACH) -max_len=600 || exit 1; \
	done

mutants: $(STAMP) ## change the code at random points and list the changes that no test notices
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt cosmic-ray
	$(ONE_THREAD) $(BIN)/python scripts/mutation.py

docs: $(STAMP) ## the documentation site, in site/
	$(BIN)/python scripts/docs_tables.py
	$(BIN)/zensical build --clean --strict

clean: ## remove environments, caches and built files
	rm -rf $(VENV) $(BENCH_VENV) site build dist golden
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(STAMP): $(PINS)
	$(call environment,$(VENV),$(DEV_EXTRAS))

$(BENCH_STAMP): $(PINS)
	$(call environment,$(BENCH_VENV),$(BENCH_EXTRAS))
