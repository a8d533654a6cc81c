# Everything a developer or CI does with this repository. `make` alone lists the targets.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.setup-done
CLASSES := .venv/spark-classes.jsa

.DEFAULT_GOAL := help
.PHONY: help setup browser pictures demo test test-long check format bench bench-kafka drill versions docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv and install what requirements.lock pins, and holdfast itself

# The stamp lies inside .venv, so removing .venv is enough to start over.
$(STAMP): pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { \
	  echo "holdfast needs Python 3.11 or newer, and there is no python3 on PATH."; \
	  echo "Fix: install Python 3.11, or say which one to use: make setup PYTHON=/path/to/python3.11"; \
	  exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "holdfast needs Python 3.11 or newer; $(PYTHON) is $$("$(PYTHON)" -V 2>&1)."; \
	  echo "Fix: install Python 3.11, or say which one to use: make setup PYTHON=/path/to/python3.11"; \
	  exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup ## run the Wikipedia story: a stream, a kill -9, a resume, and the proof
	$(BIN)/holdfast demo

# Spark's classes as Java has loaded them once: saves each JVM of a test a quarter of its start.
$(CLASSES): $(STAMP)
	@$(BIN)/python tests/class_archive.py $@ > $@.log 2>&1 || { cat $@.log; exit 1; }

# For the tests of web pages. Without it they are skipped, but for CI.
browser: ## install Debian's Chromium, if it is missing and that can be done
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends chromium fonts-dejavu-core > /dev/null; } || \
	  echo "no chromium: tests of web pages will be skipped"

# Much of what these tests do is waiting for processes, so even two cores can do two at a time.
# Tests with Kafka are apart: their JVM has to be started with its connector.
WORKERS ?= 2
test: setup browser $(CLASSES) ## everything CI runs: check, tests, docs
	$(MAKE) --no-print-directory check
	$(BIN)/pytest -n $(WORKERS) --durations=40 -m "not long" --ignore=tests/kafka
	$(BIN)/pytest -n $(WORKERS) --durations=10 -m "not long" tests/kafka
	$(MAKE) --no-print-directory docs

test-long: setup browser $(CLASSES) ## the tests that take long: whole matrices, drills, the tutorial as it is typed
	$(BIN)/pytest -n $(WORKERS) --durations=40 -m long --ignore=tests/kafka
	$(BIN)/pytest -n $(WORKERS) --durations=10 -m long tests/kafka

check: setup ## lint, formatting, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## fix what ruff can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup ## the speed table
	$(BIN)/holdfast bench

# The other libraries pin packages of their own, so they get an environment of their own. The
# connector is taken in versions that go together with this Spark; see tests/kafka.
PEERS := .venv-peers
CONNECTOR := .venv/kafka-connector
$(PEERS)/.done: $(STAMP)
	@test -x $(PEERS)/bin/python || "$(PYTHON)" -m venv $(PEERS)
	$(BIN)/uv pip install --quiet --python $(PEERS)/bin/python quixstreams bytewax pathway
	@touch $@
$(CONNECTOR)/.done: tests/kafka/connector.pom.xml $(STAMP)
	mvn --quiet --batch-mode -f $< dependency:copy-dependencies -DoutputDirectory=$(abspath $(CONNECTOR)) \
	  -DincludeArtifactIds=spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2
	@touch $@
FLINK := $(PEERS)/flink
FLINK_SOURCE := src/holdfast/bench/peers
$(FLINK)/.done: $(FLINK_SOURCE)/flink.pom.xml $(FLINK_SOURCE)/FlinkTotals.java $(PEERS)/.done
	mvn --quiet --batch-mode -f $< dependency:copy-dependencies -DoutputDirectory=$(abspath $(FLINK))/jars \
	  -DincludeScope=runtime
	javac -cp '$(FLINK)/jars/*' -d $(FLINK)/classes $(FLINK_SOURCE)/FlinkTotals.java
	@touch $@
bench-kafka: $(PEERS)/.done $(FLINK)/.done $(CONNECTOR)/.done ## from Kafka to Kafka, next to other programs
	HOLDFAST_KAFKA_JARS=$(abspath $(CONNECTOR)) $(BIN)/holdfast bench --only kafka \
	  --peers $(PEERS)/bin/python --flink $(FLINK) $(BENCH)

drill: setup ## break a job at every moment of an epoch, and check that nothing was lost
	$(BIN)/holdfast drill

# An environment of its own: the same packages, but for Spark.
OTHER_SPARK ?= 4.2.0
OTHER := .venv-spark-$(OTHER_SPARK)
versions: setup ## restore savepoints of this Spark under another one (OTHER_SPARK=4.2.0)
	@test -x $(OTHER)/bin/python || "$(PYTHON)" -m venv $(OTHER)
	$(BIN)/uv pip freeze --quiet --python $(BIN)/python --exclude-editable | grep -v '^pyspark==' > $(OTHER)/pins.txt
	$(BIN)/uv pip install --quiet --python $(OTHER)/bin/python -r $(OTHER)/pins.txt pyspark==$(OTHER_SPARK)
	$(BIN)/uv pip install --quiet --python $(OTHER)/bin/python --no-deps --no-build-isolation --editable .
	$(BIN)/python tests/versions/take.py $(OTHER)/taken
	$(OTHER)/bin/python tests/versions/restore.py $(OTHER)/taken

pictures: setup browser ## take the pictures of the web pages in docs/images anew
	TEST_PICTURES=docs/images $(BIN)/pytest tests/browser/test_pictures.py

docs: setup ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

# Keeps the pins that still fit; `make lock UPGRADE=--upgrade` takes the newest of everything.
lock: setup ## write requirements.lock anew from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --group dev --all-extras --universal --python-version 3.11 \
	  --generate-hashes --quiet --custom-compile-command "make lock" $(UPGRADE) -o requirements.lock

clean: ## remove caches and built files; .venv stays
	rm -rf site dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +
