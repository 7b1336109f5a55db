# `make demo` and `make test` do all their own set-up; the rest is for those who work on robotrials.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
STAMP := $(VENV)/.built
KERNELS := $(shell find src tests -name kernel.c) src/robotrials/stats/native.h tools/build_kernels.py
QUIETLY := -qq --disable-pip-version-check
# Compiled modules are kept, whatever the caller's environment says: suites start thousands of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test order quick docs wheel-test again drift test-peers test-drift test-hosts test-platform test-scale test-training story setup check study grid crash soak cheat fuzz fuzz-python bench bench-peers generated house lock lock-test audit-lock sbom system peers clean

demo: $(STAMP)
	$(BIN)/robotrials demo

# Three workers for two cores, since tests wait for servers, browsers and clocks; and one thread of BLAS in each.
test: $(STAMP) system peers check
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal

# The same tests in five orders drawn at random: one that fails for its neighbours' sake is a bug. About an hour.
ORDERS ?= 1 2 3 4 5
order: $(STAMP) system peers
	for seed in $(ORDERS); do ROBOTRIALS_ORDER=$$seed $(BIN)/python -m pytest -n 2 --dist worksteal || lost="$$lost $$seed"; done; \
		test -z "$$lost" || { echo "failed in the orders$$lost"; exit 1; }

check: $(STAMP)
	$(BIN)/ruff format --check src tests bench tools
	$(BIN)/ruff check src tests bench tools
	$(BIN)/mypy
	$(BIN)/lint-imports

# For each change while one works: no apt, no peers, no browser; lint, types, and the quickest tests of every room.
quick: $(STAMP) check
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(QUICK)
QUICK := tests/test_house.py tests/test_names.py tests/cli/test_option.py tests/formats/test_table.py \
	tests/measure/timing/test_tally.py tests/measure/safety/test_formula.py tests/measure/actions/test_parse.py \
	tests/measure/geometry/test_pose.py tests/policies/test_plain.py tests/record/test_episode.py tests/run/test_plan.py \
	tests/service/platform/test_job.py tests/service/test_frame.py tests/show/test_document_text.py \
	tests/show/test_page.py tests/stats/test_dominance.py tests/study/test_evaluate.py tests/study/test_shortcut_plan.py \
	tests/verdict/analysis/test_quality.py tests/verdict/planning/test_capacity.py tests/wire \
	tests/worlds/cell/test_measure.py tests/worlds/cell/test_panda.py tests/worlds/cell/test_task.py

# The documentation as a site in site/, offline, with search and llms.txt; a warning is an error.
docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

.venv-docs/.installed: pyproject.toml tools/extra.py
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install $(QUIETLY) $$($(PYTHON) tools/extra.py docs)
	touch $@

# The wheel, built, checked and used in empty environments of every Python that is here; WHEEL_PYTHONS names others.
WHEEL_PYTHONS ?= python3.11 python3.12 python3.13
wheel-test:
	$(PYTHON) tools/wheel_test.py $(WHEEL_PYTHONS)

# What failed last, of any suite; without such a list this fails too.
again: $(STAMP)
	ROBOTRIALS_ENVIRONMENTS=$${ROBOTRIALS_ENVIRONMENTS:-$(CURDIR)/.peers/environments} $(BIN)/python -m pytest -m '' --last-failed --last-failed-no-failures none

# Against programs whose environments take gigabytes, such as LeRobot with torch.
test-peers: $(STAMP) peers
	@$(BIN)/python tools/peer_environments.py lerobot > /dev/null
	ROBOTRIALS_ENVIRONMENTS=$${ROBOTRIALS_ENVIRONMENTS:-$(CURDIR)/.peers/environments} $(BIN)/python -m pytest -m 'peers and not drift'

# The same with LeRobot 0.6, on Python 3.12, and positronic's own writer: eight gigabytes more.
test-drift: $(STAMP) peers
	ROBOTRIALS_ENVIRONMENTS=$${ROBOTRIALS_ENVIRONMENTS:-$(CURDIR)/.peers/environments} $(BIN)/python -m pytest -m drift

# The benchmarks in their own environments, which are made where they are missing.
test-hosts: $(STAMP) system
	ROBOTRIALS_ENVIRONMENTS=$${ROBOTRIALS_ENVIRONMENTS:-$(CURDIR)/.peers/environments} $(BIN)/python -m pytest -m 'hosts and not drift'

# Server, workers and clients as real processes, on SQLite and PostgreSQL, and in a browser.
test-platform: $(STAMP) system
	$(BIN)/python -m pytest -m platform

# A Ray cluster of several nodes' worth of processes, and an S3 server, on this machine.
test-scale: $(STAMP)
	$(BIN)/python -m pytest -m scale

# Probes trained on demonstrations of the embedded cell, in the environment that users get; about 20 minutes of one core.
test-training: $(STAMP) system
	ROBOTRIALS_ENVIRONMENTS=$${ROBOTRIALS_ENVIRONMENTS:-$(CURDIR)/.peers/environments} $(BIN)/python -m pytest -m training

# The newest release of every peer, tried, and docs/reference/compatibility.md written; PEERS="vla-eval lerobot" for some.
drift: $(STAMP)
	$(BIN)/python tools/drift.py $(PEERS)

# The demo with ten seeds: what it says must not hang on one. About five minutes of two cores.
story: $(STAMP)
	$(BIN)/python -m pytest -m story

# Simulations of minutes, and curves, means and tests against R's survival.
study: $(STAMP)
	@sh tools/system_libraries.sh study
	$(BIN)/python -m pytest -n 2 --dist worksteal -m study

# Every verdict path over a grid of simulated worlds (minutes), then intervals (about ten; a stopped run resumes).
grid: $(STAMP)
	$(BIN)/python -m tests.grid verdicts
	$(BIN)/python -m tests.grid intervals

# Mutants of a valid file of every reader, in processes that may die; MINUTES for each reader.
MINUTES ?= 2
fuzz: $(STAMP)
	$(BIN)/python tools/fuzz.py --minutes $(MINUTES) --keep .fuzz

# Parsers that are Python alone, by coverage (atheris, for Python 3.11); MINUTES for each.
fuzz-python: $(STAMP)
	test -x .venv-fuzz/bin/python || $(PYTHON) -m venv .venv-fuzz
	.venv-fuzz/bin/pip install $(QUIETLY) atheris==3.0.0
	PYTHONPATH=src:$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
		.venv-fuzz/bin/python tools/fuzz_python.py --minutes $(MINUTES) --keep .fuzz

# Server, workers, clients and the database killed at random for SOAK_S seconds on each kind of database; then all is counted.
SOAK_S ?= 1800
soak: $(STAMP) system
	ROBOTRIALS_SOAK_S=$(SOAK_S) $(BIN)/python -m pytest -s -m platform tests/service/platform/test_random_kills.py

# Strategies of a cheating submitter, drawn and changed for CHEAT_S seconds against real processes; none may turn a lost episode.
CHEAT_S ?= 1200
cheat: $(STAMP)
	ROBOTRIALS_CHEAT_S=$(CHEAT_S) $(BIN)/python -m pytest -s -m platform tests/service/platform/test_cheating_submitter.py

crash: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m crash

# Every row of the benchmarks, about 25 minutes of two quiet cores; rows whose peer is missing are named and left out.
bench: $(STAMP) system
	ROBOTRIALS_ENVIRONMENTS=$${ROBOTRIALS_ENVIRONMENTS:-$(CURDIR)/.peers/environments} $(BIN)/python -m bench

# The peers of the benchmarks in their own environments: about 15 GB.
bench-peers: $(STAMP) system peers
	sh tools/peer_open3d.sh
	sh tools/peer_tfds.sh
	for name in libero lerobot-0.6; do \
		ROBOTRIALS_ENVIRONMENTS=$${ROBOTRIALS_ENVIRONMENTS:-$(CURDIR)/.peers/environments} $(BIN)/robotrials env create $$name || exit 1; \
	done
	ROBOTRIALS_ENVIRONMENTS=$${ROBOTRIALS_ENVIRONMENTS:-$(CURDIR)/.peers/environments} $(BIN)/python tools/peer_environments.py lerobot-eval

setup: $(STAMP) system peers

# Outside programs that can't live in our environment, such as openpi's own client (numpy 1).
peers: $(STAMP)
	@$(BIN)/python tools/peer_environments.py > /dev/null

system:
	@sh tools/system_libraries.sh

# The kernels in C, where there is a compiler; without one numpy serves.
$(STAMP): $(INSTALLED) $(KERNELS)
	@$(BIN)/python tools/build_kernels.py
	@touch $(STAMP)

$(INSTALLED): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install $(QUIETLY) --require-hashes -r requirements.lock
	$(BIN)/pip install $(QUIETLY) --no-deps --no-build-isolation -e .
	touch $(INSTALLED)

# Lines, modules, classes and options of each room, who imports whom, and the modules that data pass through.
house: $(STAMP)
	@$(BIN)/python tools/house.py
	@$(BIN)/python tools/house.py --trace

generated: $(STAMP)
	sh tools/regenerate.sh

lock: $(STAMP)
	$(BIN)/pip install $(QUIETLY) -e '.[dev]'
	test -x .venv-lock/bin/uv || ($(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install $(QUIETLY) uv)
	$(BIN)/python tools/lock.py write $(BIN)/pip .venv-lock/bin/uv
	$(BIN)/python tools/sbom.py requirements.lock > sbom.json

# The locks, installed with their hashes in empty environments of every Python that we support.
lock-test:
	$(PYTHON) tools/lock.py try $(WHEEL_PYTHONS)

# Known vulnerabilities of what is locked; it fails where no data can be had, too.
audit-lock:
	$(PYTHON) tools/lock.py audit

sbom: requirements.lock
	$(PYTHON) tools/sbom.py requirements.lock > sbom.json

clean:
	rm -rf $(VENV) .venv-docs .venv-lock .wheel site .peers .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
