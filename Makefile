# Needs Python 3.11 or later, pip and make. Every target installs what it needs into .venv (the first time takes a few
# minutes: PySpark is large) and is quick when that is there. `make` alone lists the targets.

.DEFAULT_GOAL := help
.PHONY: help demo test test-deep soak sim check proto bench dev clean
.DELETE_ON_ERROR:

AREAS := kraft logstore replication server sdk spark_connector proto

BIN := .venv/bin
INSTALLED := .venv/.installed
PROTO_INSTALLED := .venv-proto/.installed
GRPC_TOOLS := grpcio-tools==1.76.0# generated code of protobuf 6.31.1: newer would force a newer runtime on every user

JOBS ?= 2#          test processes at a time
SEED ?= 1#          make sim SEED=7
SEEDS ?= 1000#      make soak SEEDS=100000
SIM ?= cluster#     make sim SIM=quorum: Raft alone, with more faults
PART ?=#            make test-deep PART=property: one folder of tests/
ARGS ?=#            more arguments for pytest, the simulator or the benchmark

# The first interpreter that is new enough; a version manager's shim may be there and still not run.
FIND_PYTHON = for python in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; done; \
	test -n "$$python" || { echo 'kraftlog needs Python 3.11 or later: install it, or run make PYTHON=/path/to/python' >&2; exit 1; }
PROTOC = .venv-proto/bin/python -m grpc_tools.protoc -Ikraftlog/proto=proto $(patsubst %,kraftlog/%,$(wildcard proto/*.proto))
SIMULATOR = $(BIN)/python -m kraftlog.testing.$(if $(filter quorum,$(SIM)),raft_sim,sim)
TALLY = tests/sim/$(if $(filter quorum,$(SIM)),raft/)tally.csv
PYRIGHT = PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
# Every module by the path of its import name: by its place in the checkout it would be a second module with other types.
MODULES = `find -L build/types/kraftlog build/types/pyspark_kraftlog -name '*.py' -not -name '*_pb2*' \
	-not -path '*/server/testing/*' -not -path '*/sdk/_root/*' -not -path '*/spark_connector/_discovery/*'`
# Into a folder of its own, then file by file against what is committed.
COMPARE_GENERATED = rm -rf .dev/drift && mkdir -p .dev/drift && \
	$(PROTOC) --python_out=.dev/drift --pyi_out=.dev/drift --grpc_python_out=.dev/drift && \
	for file in .dev/drift/kraftlog/proto/*; do diff -u proto/$$(basename $$file) $$file || stale=yes; done; \
	test -z "$$stale" || { echo 'generated code differs from its .proto: run make proto and commit the result' >&2; false; }
# One check: its name, then the command. All run, so that one look shows everything.
step = @printf '\033[1m==> %s\033[0m\n' '$(1)'; { $(2); } || echo '$(1)' >> .dev/failed
say = @printf '\033[1m==> %s\033[0m\n' '$(1)'

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

demo: $(INSTALLED) ## bootstrap a cluster of three nodes, put 336,776 real flights through it, aggregate them with Spark
	@$(BIN)/python examples/demo.py $(ARGS)

test: $(INSTALLED) ## unit, property, simulation, process, packaging and Spark tests
	@$(BIN)/pytest -n $(JOBS) -m 'not deep' $(ARGS)

test-deep: $(INSTALLED) ## the long tests, two hours; PART=property runs one folder of tests/
	@KRAFTLOG_EXAMPLES=$${KRAFTLOG_EXAMPLES:-20000} KRAFTLOG_SEEDS=$${KRAFTLOG_SEEDS:-2000} \
		$(BIN)/pytest -n $(JOBS) -m deep --timeout 5400 $(ARGS) tests/$(PART)

sim: $(INSTALLED) ## one simulated cluster with crashes: SEED=n replays that run; SIM=quorum: the quorum alone
	@$(SIMULATOR) --seed $(SEED) $(ARGS)

soak: $(INSTALLED) ## SEEDS=n more simulated clusters for the tally of all that were ever run; SIM=quorum: for that of quorums
	@$(SIMULATOR) --seeds $(SEEDS) --tally $(TALLY) $(ARGS)

bench: $(INSTALLED) ## throughput beside Apache Kafka, as a table
	@$(BIN)/python benchmarks/run.py $(ARGS)

check: $(INSTALLED) $(PROTO_INSTALLED) ## static checks: format, lint, types, imports, drift of generated code
	@rm -f .dev/failed
	$(call step,ruff format,$(BIN)/ruff format --check .)
	$(call step,ruff check,$(BIN)/ruff check .)
	$(call step,mypy --strict,$(BIN)/mypy -p kraftlog -p pyspark_kraftlog)
	$(call step,mypy --strict examples,$(BIN)/mypy examples)
	$(call step,pyright,$(PYRIGHT) $(MODULES))
	$(call step,pyright on tests and examples,$(PYRIGHT))
	$(call step,import-linter,PYTHONPATH=.dev $(BIN)/lint-imports)
	$(call step,generated code,$(COMPARE_GENERATED))
	@if test -s .dev/failed; then echo "make check failed: `paste -sd, .dev/failed`" >&2; exit 1; fi

proto: $(PROTO_INSTALLED) .dev/.laid ## generate the *_pb2 modules from proto/*.proto
	@$(PROTOC) --python_out=.dev --pyi_out=.dev --grpc_python_out=.dev

dev: $(INSTALLED) ## only set up: .venv with everything, and the links that type checkers need

clean: ## remove all that the targets made
	rm -rf .venv .venv-proto .dev .demo build dist kraftlog.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache \
		.import_linter_cache spark-warehouse metastore_db derby.log proto/records/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The editable install maps kraftlog.<area> to ./<area> (setup.py) and compiles the codec, if there is a compiler.
$(INSTALLED): pyproject.toml setup.py $(wildcard proto/records/*.c proto/records/*.h) | .dev/.laid
	$(call say,installing kraftlog and its tools into .venv)
	@$(FIND_PYTHON); test -x $(BIN)/pip || $$python -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check -e '.[dev,all]'
	@$(BIN)/python -c 'import pathlib, sysconfig; \
		pathlib.Path(sysconfig.get_path("purelib"), "kraftlog-spark.pth").write_text(str(pathlib.Path(".dev/spark").resolve()) + "\n")'
	@touch $@

# Links under the import names, for mypy, pyright, import-linter and protoc; .dev/spark is what Spark's discovery of
# data sources sees of an editable install.
.dev/.laid: Makefile
	@mkdir -p .dev/kraftlog .dev/spark
	@for area in $(AREAS); do ln -sfn ../../$$area .dev/kraftlog/$$area; done
	@ln -sfn ../../server/testing .dev/kraftlog/testing
	@ln -sfn ../../sdk/_root/__init__.py .dev/kraftlog/__init__.py
	@ln -sfn ../../sdk/_root/py.typed .dev/kraftlog/py.typed
	@ln -sfn ../../spark_connector/_discovery .dev/spark/pyspark_kraftlog
	@ln -sfn spark/pyspark_kraftlog .dev/pyspark_kraftlog
	@mkdir -p build && ln -sfn ../.dev build/types # pyright does not look into folders with a dot
	@touch $@

$(PROTO_INSTALLED): Makefile
	$(call say,installing $(GRPC_TOOLS) into .venv-proto)
	@$(FIND_PYTHON); test -x .venv-proto/bin/pip || $$python -m venv .venv-proto
	@.venv-proto/bin/python -m pip install --disable-pip-version-check $(GRPC_TOOLS) 'setuptools<81'
	@touch $@
