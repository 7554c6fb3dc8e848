# The only entry point. Every target does one thing, and CI runs what a developer runs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
ROUNDS ?= 20
JOURNEYS ?= 100
MINUTES ?= 10
SIM_SECONDS ?= 60
SEEDS ?= 1000
FUZZ_SECONDS ?= 60

VENV := .venv
BIN := $(VENV)/bin
# How many workers the tests run in: one more than there are cores, for many wait for a process.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

# Bytecode is kept, also where the environment says otherwise: without it each broker that a test
# starts compiles all of its sources first, which is a third of its start.
unexport PYTHONDONTWRITEBYTECODE

# Where no Java was found, setup has put one here (docs/adr/0006-locked-dependencies.md).
ifneq ($(wildcard $(VENV)/java/bin/java),)
export JAVA_HOME := $(CURDIR)/$(VENV)/java
endif

RUST_SOURCES := $(shell find kernel kernel-py -name '*.rs' -not -path '*/target/*') \
	Cargo.toml Cargo.lock kernel/Cargo.toml kernel-py/Cargo.toml .cargo/config.toml

# Outside the workspace: only the tests of interoperability build it.
RUST_CLIENT := tests/interop/clients/rumqttc/Cargo.toml

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' \
		| awk -F'|' '{ printf "  %-14s %s\n", $$1, $$2 }'

# --- Building ------------------------------------------------------------------------------------

.PHONY: setup
setup: $(VENV)/.installed $(VENV)/.java $(VENV)/.kernel ## Build .venv with everything, and .venv/bin/holdfast

$(VENV)/.installed: requirements.lock
	@tools/prerequisites python $(PYTHON)
	@tools/prerequisites rust
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.java: requirements-java.lock tools/bring_java | $(VENV)/.installed
	@tools/prerequisites java || tools/bring_java $(VENV)
	@touch $@

$(VENV)/.kernel: $(RUST_SOURCES) pyproject.toml | $(VENV)/.installed
	@tools/prerequisites rust
	PIP_QUIET=1 VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --release --locked --features testing
	cp src/holdfast_spark.pth $(VENV)/lib/python3*/site-packages/
	@touch $@

.PHONY: lock
lock: $(VENV)/.installed ## Write the locks of the Python packages anew, with hashes
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --extra pipeline --extra postgresql --extra dev --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --group pyproject.toml:java --output-file requirements-java.lock
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --group pyproject.toml:bench --output-file requirements-bench.lock

LOCK_OPTIONS := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock"

.PHONY: wheel
wheel: $(VENV)/.installed ## Build an installable package into target/wheels
	@tools/prerequisites rust
	$(BIN)/maturin build --quiet --release --locked
	@ls target/wheels/*.whl

.PHONY: clean
clean: ## Remove everything that was built or produced here
	rm -rf $(VENV) target demo-output .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find src -name '*.so' -delete

# --- Using ---------------------------------------------------------------------------------------

.PHONY: demo
demo: setup ## From a fleet through a killed broker to tables that agree, and a report on them
	$(BIN)/python demo/demo.py

.PHONY: run
run: setup ## Start the broker in the foreground, with its defaults
	$(BIN)/holdfast serve

# --- Checking ------------------------------------------------------------------------------------

.PHONY: test
test: rust-test python-test ## Run every test that ends by itself within minutes

# Spark starts in half of the time where it finds there what it loads.
target/spark-classes.jsa: tests/spark_classes.py $(VENV)/.installed $(VENV)/.java | $(VENV)/.kernel
	$(BIN)/python -m tests.spark_classes

.PHONY: python-test
python-test: setup target/spark-classes.jsa
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not long" tests

.PHONY: test-long
test-long: setup target/spark-classes.jsa ## Run the tests that take about a minute each, which `make test` leaves out
	$(BIN)/python -m pytest -q -m long tests

.PHONY: rust-test
rust-test: ## Run the kernel's own tests
	@tools/prerequisites rust
	cargo test --quiet --locked --workspace --exclude holdfast-kernel-py

.PHONY: fmt
fmt: setup ## Lay out the sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --quiet . || true
	cargo fmt
	cargo fmt --manifest-path $(RUST_CLIENT)

.PHONY: lint
lint: setup ## Check layout, lints and import contracts; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	cargo fmt --check
	cargo fmt --check --manifest-path $(RUST_CLIENT)
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo clippy --quiet --locked --workspace --all-targets --all-features -- -D warnings

.PHONY: types
types: setup ## Check types, and the boundary's stub against the compiled module
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest holdfast._kernel --concise --allowlist kernel-py/stub-allowed.txt

.PHONY: coverage
coverage: setup ## Say which numbered behaviours have a test that names them
	$(BIN)/python -m tests.tidy.acceptance_coverage

.PHONY: ci
ci: lint types test coverage ## All that must hold before a change is taken

.PHONY: sim
sim: setup ## Run the whole broker in virtual time under faults, for SIM_SECONDS of real time, twice
	$(BIN)/python -m tests.simulation --seconds $(SIM_SECONDS)
	$(BIN)/python -m tests.simulation --seconds $(SIM_SECONDS) --entries

.PHONY: sim-bridges
sim-bridges: setup ## Run brokers that bridges join in virtual time under faults, SEEDS of them
	$(BIN)/python -m tests.simulation.bridges --seeds $(SEEDS)

.PHONY: mutants
mutants: setup ## Plant small faults one by one, in a copy, and say which of them no test finds
	@tools/prerequisites rust
	$(BIN)/python -m tests.mutants

.PHONY: crash
crash: setup ## Kill the broker under load, ROUNDS times, and check what it had acknowledged
	$(BIN)/python -m tests.crash --rounds $(ROUNDS)

.PHONY: crash-damage
crash-damage: setup ## Cut and flip the log of a killed broker, ROUNDS times each kind
	$(BIN)/python -m tests.crash --rounds $(ROUNDS) --damage torn
	$(BIN)/python -m tests.crash --rounds $(ROUNDS) --damage cut
	$(BIN)/python -m tests.crash --rounds $(ROUNDS) --damage flip

.PHONY: crash-bridge
crash-bridge: setup ## Kill either end of a bridge under load, ROUNDS times, and count at both ends
	$(BIN)/python -m tests.crash.bridge --rounds $(ROUNDS)

.PHONY: crash-pulsar
crash-pulsar: setup ## Kill the broker of Pulsar's and MQTT clients, ROUNDS times, and check what was acknowledged
	$(BIN)/python -m tests.crash.pulsar --rounds $(ROUNDS)

.PHONY: pipeline-crash
pipeline-crash: setup ## Kill devices, broker, driver, executors and workers, JOURNEYS rounds, and count the table
	$(BIN)/python -m tests.journey --rounds $(JOURNEYS)

.PHONY: processors-crash
processors-crash: setup ## Kill processors, their broker and database, ROUNDS times, and count the tables
	$(BIN)/python -m tests.crash.processors --rounds $(ROUNDS)

.PHONY: soak
soak: setup ## Mixed load with churn for MINUTES: memory, descriptors and disk stay flat
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

.PHONY: fuzz
fuzz: ## Feed the decoders seeded garbage for FUZZ_SECONDS
	@tools/prerequisites rust
	FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --release --locked -p holdfast-kernel --test codec_fuzz -- --nocapture

# --- Measuring and writing -----------------------------------------------------------------------

.PHONY: bench
bench: setup bench-setup ## Measure beside other brokers in one run; the table goes to bench/results
	cargo build --quiet --release --locked -p holdfast-load
	$(BIN)/python -m bench.beside --peer mosquitto --peer nats
	$(BIN)/python -m bench.bridge
	$(BIN)/python -m bench.pipeline
	$(BIN)/python -m bench.processors
	$(BIN)/python -m bench.macro

.PHONY: bench-pipeline
bench-pipeline: setup ## Measure what Spark reads, streams and writes here, beside Spark's own ways
	cargo build --quiet --release --locked -p holdfast-load
	$(BIN)/python -m bench.pipeline

.PHONY: bench-beside
bench-beside: setup ## Measure what everybody notices beside long work: queries, returns, retention, checkpoints
	$(BIN)/python -m bench.beside

.PHONY: bench-bridge
bench-bridge: setup bench-setup ## Measure what a bridge carries, beside Mosquitto's, and what it costs the broker
	$(BIN)/python -m bench.bridge

.PHONY: bench-processors
bench-processors: setup ## Measure how queued messages are taken and written into databases, beside other clients
	$(BIN)/python -m bench.processors

.PHONY: bench-micro
bench-micro: ## Count the instructions of the kernel's hot path, beside those on record
	@tools/prerequisites rust
	$(PYTHON) -m bench.micro

.PHONY: bench-profile
bench-profile: setup ## Write docs/performance.md: the time of a loaded broker by stage (needs perf)
	$(BIN)/python -m bench.profile --write

.PHONY: bench-recovery
bench-recovery: setup ## Measure a start after kill -9 with 10 GB of log and 1 000 sessions
	$(BIN)/python -m bench.recovery

.PHONY: bench-setup
bench-setup: target/bench-peers/.installed target/bench-pulsar/.installed ## Bring the brokers that are compared, or say which are missing
	@tools/prerequisites mosquitto
	@tools/prerequisites flashmq
	@tools/prerequisites nats
	@tools/prerequisites rabbitmq

# Pulsar's own broker and its Java client: 317 jars, 235 MB. Their hashes are compared.
target/bench-pulsar/.installed: bench/official/pom.xml bench/official/jars.sha256
	@tools/prerequisites pulsar
	rm -rf $(@D)
	mvn --quiet --batch-mode --file bench/official/pom.xml dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory=$(abspath $(@D))/jars
	cd $(@D)/jars && sha256sum --quiet --check $(abspath bench/official/jars.sha256)
	@touch $@

target/bench-peers/.installed: requirements-bench.lock
	$(PYTHON) -m venv target/bench-peers
	target/bench-peers/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bench.lock
	@touch $@

.PHONY: docs
docs: setup ## Write the generated pages anew
	$(BIN)/python -m tests.tidy.limits_page --write
	$(BIN)/python -m tests.tidy.exchanges_page --write
	$(BIN)/python -m tests.tidy.conformance_page --write
	$(BIN)/python -m tests.tidy.settings_page --write
	$(BIN)/python -m tests.tidy.metrics_page --write
	$(BIN)/python -m tests.tidy.libraries_page --write
	$(BIN)/python -m tests.tidy.kafka_page --write
	$(BIN)/python -m tests.tidy.processor_keys_page --write
	$(BIN)/python -m tests.tidy.pulsar_errors_page --write
