# Every verb of this project. `make` alone prints them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
# Tests start thousands of interpreters: each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
OUT ?= out
# How long `make explore` goes on.
SECONDS ?= 600
MATURIN := $(VENV)/.maturin
DEPENDENCIES := $(VENV)/.dependencies
TORCH_DEPENDENCIES := $(VENV)/.torch-dependencies
FRAMEWORKS_DEPENDENCIES := $(VENV)/.frameworks-dependencies
APPLY_DEPENDENCIES := $(VENV)/.apply-dependencies
DOCS_DEPENDENCIES := $(VENV)/.docs-dependencies
RELEASE_TOOLS := $(OUT)/release/.tools
EXTENSION := $(VENV)/.extension
# What tests and linters run in: the extension that `make setup` built, or, in a tree without one, a
# build that shares its crates with the Rust tests. It checks for overflow and is slower.
CHECKED := $(if $(wildcard $(EXTENSION)),$(EXTENSION),$(VENV)/.extension-checked)
# What `make demo` runs in: the same, or a build that leaves the runtime out and is there sooner.
QUICK := $(if $(wildcard $(EXTENSION)),$(EXTENSION),$(VENV)/.extension-quick)
RUST := $(shell find crates -name '*.rs' -o -name Cargo.toml 2>/dev/null) \
        Cargo.toml Cargo.lock pyproject.toml
# Modules of Python are compiled when they are first imported: most never are.
INSTALL := install --quiet --disable-pip-version-check --no-compile
LOCKED := $(INSTALL) --require-hashes -r
# What is compiled once need not be compiled in pieces.
ifdef CI
export CARGO_INCREMENTAL := 0
endif

.PHONY: help
help: ## print this list
	@echo "allrail: make VERB"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## make .venv: a locked environment with allrail built into it
	@$(MAKE) --no-print-directory --jobs=2 $(EXTENSION)

# Any Python from 3.11 on that can make environments; PYTHON=... overrides the search. What compiles comes first:
# it does so while pip fetches the rest.
$(MATURIN): requirements.lock
	@python="$${PYTHON:-}"; \
	if [ -z "$$python" ]; then \
	  for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	    if "$$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	        >/dev/null 2>&1; then python="$$name"; break; fi; \
	  done; \
	fi; \
	if [ -z "$$python" ]; then \
	  echo "error: no Python 3.11 or later with \`venv\` and \`ensurepip\` was found" >&2; \
	  echo "hint: install one (on Debian also \`python3-venv\`)," \
	       "or name it: \`make setup PYTHON=/path/to/python\`" >&2; \
	  exit 1; \
	fi; \
	if ! $(BIN)/python -c '' >/dev/null 2>&1; then \
	  rm -rf $(VENV); "$$python" -m venv $(VENV); \
	fi
	$(BIN)/python -m pip $(LOCKED) <(sed -n '/^maturin==/,/[^\\]$$/p' requirements.lock)
	@touch $@

$(DEPENDENCIES): requirements.lock | $(MATURIN)
	$(BIN)/python -m pip $(LOCKED) requirements.lock
	@touch $@

$(EXTENSION): PROFILE := release
$(VENV)/.extension-checked: PROFILE := dev
$(VENV)/.extension-quick: PROFILE := release --no-default-features
$(EXTENSION): $(VENV)/.compiled
$(VENV)/.extension-checked $(VENV)/.extension-quick: $(VENV)/.extension-%: $(VENV)/.compiled-%
$(VENV)/.compiled $(VENV)/.compiled-checked $(VENV)/.compiled-quick: $(RUST) | $(MATURIN)
	@if ! command -v cargo >/dev/null; then \
	  echo "error: no Rust toolchain was found: \`cargo\` is not on PATH" >&2; \
	  echo "hint: install the stable toolchain, with rustfmt and clippy" >&2; exit 1; \
	fi
	MAKEFLAGS= $(BIN)/maturin pep517 build-wheel -i "$(CURDIR)/$(BIN)/python" --compatibility off --editable \
	  --locked --profile $(PROFILE) >$@.log 2>&1 || { cat $@.log >&2; exit 1; }
	@touch $@
$(EXTENSION) $(VENV)/.extension-checked $(VENV)/.extension-quick: $(DEPENDENCIES) $(RUST)
	PATH="$(CURDIR)/$(BIN):$$PATH" MATURIN_PEP517_ARGS="--locked --profile $(PROFILE)" \
	  $(BIN)/python -m pip $(INSTALL) --no-deps --no-build-isolation --editable . --editable reproduce
	@rm -f $(VENV)/.extension*; touch $@

.PHONY: build
build: $(EXTENSION) ## build the Rust core into .venv, if it changed

# Three at a time, since compilers leave a core idle by turns, and tests of processes mostly wait; each
# shows what it has to say when it is over.
.PHONY: test
test: ## everything: Rust tests, Python tests, lint, type check
	@$(MAKE) --no-print-directory --keep-going --jobs=3 \
	  $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) \
	  test-rust test-python lint

.PHONY: test-rust
test-rust: export PROPTEST_RNG_SEED ?= 1
test-rust: ## the Rust tests alone
	cargo test --workspace --tests --locked --quiet --no-fail-fast
	MAKEFLAGS= cargo test --workspace --doc --locked --quiet

# What the tests of allrail.torch need beside; fetching it is some 3 GB.
$(TORCH_DEPENDENCIES): requirements-torch.lock $(DEPENDENCIES)
	$(BIN)/python -m pip $(LOCKED) requirements-torch.lock
	@touch $@

# The Python tests in parts of about the same length: those of processes, most of them with torch; golden
# ones; the others.
PROCESSES := tests/runtime tests/testbed tests/torch
PARTS := processes golden others
TESTS_processes := $(PROCESSES)
TESTS_golden := tests/golden
TESTS_others := $(patsubst %,--ignore=%,$(PROCESSES) tests/golden)

.PHONY: test-python $(PARTS:%=test-python-%)
test-python: $(PARTS:%=test-python-%) ## the Python tests alone
$(PARTS:%=test-python-%): test-python-%: $(CHECKED) $(TORCH_DEPENDENCIES)
	$(BIN)/python -m pytest -q -m 'not long' $(TESTS_$*)

# Trainer, accelerate and Lightning, for the recipes of docs/guides/frameworks.md.
$(FRAMEWORKS_DEPENDENCIES): requirements-frameworks.lock $(TORCH_DEPENDENCIES)
	$(BIN)/python -m pip $(LOCKED) requirements-frameworks.lock
	@touch $@

.PHONY: test-long
test-long: $(CHECKED) $(FRAMEWORKS_DEPENDENCIES) ## the tests that `make test` leaves out, because they are long
	$(BIN)/python -m pytest -q -m long

# What Megatron-LM and torchtitan import; they themselves come from checkouts, without their own requirements.
$(APPLY_DEPENDENCIES): requirements-apply.lock $(FRAMEWORKS_DEPENDENCIES)
	$(BIN)/python -m pip $(LOCKED) requirements-apply.lock
	@touch $@

# Where `make apply-check` finds the tools: a checkout of Megatron-LM, folders that have torchtitan
# (several with a colon between), a checkout of NCCL. What is not named is skipped, with the reason.
MEGATRON ?=
TORCHTITAN ?=
NCCL ?=

.PHONY: apply-check
apply-check: $(CHECKED) $(APPLY_DEPENDENCIES) ## what `apply` writes, read by the tools: MEGATRON=DIR TORCHTITAN=DIR NCCL=DIR
	ALLRAIL_MEGATRON=$(abspath $(MEGATRON)) \
	  ALLRAIL_TORCHTITAN=$(subst $(eval) ,:,$(abspath $(subst :, ,$(TORCHTITAN)))) \
	  ALLRAIL_NCCL=$(abspath $(NCCL)) $(BIN)/python -m pytest -q -m long tests/tools

# In an environment of its own: TensorFlow asks for other versions than the frameworks on torch do.
.PHONY: keras-check
keras-check: $(CHECKED) ## Keras 3 over TensorFlow and JAX: four ranks against one process, and what a step takes
	[ -d $(abspath $(OUT))/keras ] || $(BIN)/python -m venv $(abspath $(OUT))/keras
	$(abspath $(OUT))/keras/bin/pip $(LOCKED) requirements-keras.lock
	PYTHONPATH=python $(abspath $(OUT))/keras/bin/python -m pytest -q -m long tests/runtime/test_keras.py
	PYTHONPATH=python $(abspath $(OUT))/keras/bin/python benches/keras_steps.py

# The oldest torch that `allrail.torch` knows, the oldest of its backend, and today's.
TORCH ?= 2.4.1 2.6.0 2.15.0

.PHONY: test-torch-matrix
test-torch-matrix: $(CHECKED) ## the tests of allrail.torch on several versions of torch: TORCH="2.4.1 2.15.0"
	@for version in $(TORCH); do \
	  environment=$(abspath $(OUT))/torch-$$version; echo "== torch $$version"; \
	  [ -d $$environment ] || $(BIN)/python -m venv $$environment; \
	  $$environment/bin/pip $(LOCKED) requirements.lock; \
	  $$environment/bin/pip $(INSTALL) torch==$$version; \
	  PYTHONPATH=python $$environment/bin/python -m pytest -q tests/torch; \
	done

# Without the runtime's bindings, yet beside the runtime: what both depend on has the features of the line before,
# and is not read again.
.PHONY: lint
lint: $(CHECKED) ## formatters and linters of both languages, the type check, and the layers
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	cargo clippy --package allrail-python --package allrail-runtime --no-default-features --locked --quiet -- -D warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python tests/lint layers

.PHONY: structure
structure: $(DEPENDENCIES) ## print the cycles of imports, in Python and within crates
	@$(BIN)/python tests/lint structure

.PHONY: words
words: $(DEPENDENCIES) ## count the words that our writing avoids, by word and by file
	@$(BIN)/python tests/lint words

.PHONY: explore
explore: $(CHECKED) ## laws and fuzzers with fresh seeds: SECONDS=600 SEED=... ONLY=... SEEDS=200
	$(BIN)/python fuzz/explore.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) \
	  $(if $(ONLY),--only '$(ONLY)') $(if $(SEEDS),--seeds $(SEEDS))

.PHONY: freeze
freeze: $(CHECKED) ## keep what commands compute in out/frozen, before a change that must not alter it
	$(BIN)/python tests/frozen write $(if $(ONLY),--only '$(ONLY)')

.PHONY: frozen
frozen: $(CHECKED) ## compare with what `make freeze` kept; exits with 1 if a value differs: ONLY='^examples/'
	$(BIN)/python tests/frozen compare $(if $(ONLY),--only '$(ONLY)')

.PHONY: mutations
mutations: ## break the engine in known ways: its laws must notice each
	crates/engine/tests/mutations/run.sh

.PHONY: format
format: build ## format both languages
	cargo fmt --all
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format --quiet

.PHONY: bench
bench: build ## measure; nothing fails on a time
	@echo "== benches/speed.py"; $(BIN)/python benches/speed.py
	@for example in allrail-network/flows_speed allrail-network/packets_speed \
	    allrail-jobs/placement_speed allrail-simulate/coordination_speed \
	    allrail-simulate/training_speed allrail-engine/engine_speed \
	    allrail-collective/rank_plans allrail-coordinate/request_cost \
	    allrail-coordinate/coordinator_cost; do \
	  echo "== $$example"; cargo run --release --locked --quiet -p $${example%/*} \
	    --example $${example#*/}; done
	@echo "== benches/horovod_requests: make bench-requests HOROVOD=FOLDER"

# A checkout of Horovod, with its submodule flatbuffers: git clone --recurse-submodules https://github.com/horovod/horovod
HOROVOD ?= ../horovod

.PHONY: bench-requests
bench-requests: ## what a request costs rank 0 of Horovod, and allrail's own; messages over sockets: HOROVOD=../horovod
	@[ -f $(HOROVOD)/horovod/common/message.cc ] || { \
	  echo "error: no checkout of Horovod in $(HOROVOD)" >&2; \
	  echo "hint: git clone --recurse-submodules https://github.com/horovod/horovod $(HOROVOD)" >&2; exit 2; }
	@mkdir -p $(OUT)
	@$(CXX) -O2 -std=c++17 -I $(HOROVOD)/horovod/common \
	  -I $(HOROVOD)/third_party/flatbuffers/include benches/horovod_requests/rank_zero.cc \
	  $(HOROVOD)/horovod/common/message.cc -o $(OUT)/rank_zero
	@echo "== Horovod, with a thread cache"; $(OUT)/rank_zero $(REQUESTS)
	@echo "== Horovod, without"; GLIBC_TUNABLES=glibc.malloc.tcache_count=0 $(OUT)/rank_zero $(REQUESTS)
	@echo "== allrail"; cargo run --release --locked --quiet -p allrail-coordinate \
	  --example coordinator_cost -- $(REQUESTS)
	@echo "== sockets"; python3 benches/horovod_requests/sockets.py

.PHONY: bench-checks
bench-checks: build $(TORCH_DEPENDENCIES) ## plant flips of bits and print what is found, and what checks cost: PARTS="frames cpu"
	$(BIN)/python benches/checks.py $(PARTS)

.PHONY: bench-runtime
bench-runtime: build $(TORCH_DEPENDENCIES) ## the runtime beside its peers on shaped links: ROWS="vgg16 bert"; an hour for all
	$(BIN)/python benches/runtime $(ROWS)

.PHONY: torch-suite
torch-suite: build $(TORCH_DEPENDENCIES) ## torch's own tests of a backend over gloo and allrail: RANKS="3 4"; 20 minutes
	$(BIN)/python benches/torch_suite.py --ranks $(or $(RANKS),3 4)

.PHONY: soak
soak: build $(TORCH_DEPENDENCIES) ## 100,000 steps, a rank killed every 10,000: nothing grows, parameters equal DDP's
	$(BIN)/python benches/soak.py

.PHONY: faults
faults: build $(TORCH_DEPENDENCIES) ## every fault of a running job, 20 times each
	REPEAT=20 $(BIN)/python -m pytest -q tests/testbed/test_faults.py

.PHONY: demo-run
demo-run: build $(TORCH_DEPENDENCIES) ## a transformer on 4 local workers, with allrail and without
	$(BIN)/python examples/11-train-a-transformer/train.py

.PHONY: demo-loop
demo-loop: build $(TORCH_DEPENDENCIES) ## run, verify, calibrate by what was seen, run again: 4 local workers
	$(BIN)/python examples/13-close-the-loop/loop.py --out $(OUT)/loop

.PHONY: reference
reference: build ## write the scenario's keys, docs/reference and the examples' expected outputs again
	$(BIN)/python docs/scenario_keys.py
	$(BIN)/python docs/generate.py
	ALLRAIL_UPDATE_EXAMPLES=1 $(BIN)/python -m pytest -q tests/golden/test_examples.py

# Sphinx, MyST and a theme: what only the site needs.
$(DOCS_DEPENDENCIES): requirements-docs.lock $(DEPENDENCIES)
	$(BIN)/python -m pip $(LOCKED) requirements-docs.lock
	@touch $@

.PHONY: site
site: build $(DOCS_DEPENDENCIES) ## build the site into out/docs; a broken link is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env \
	  -c docs -d $(OUT)/docs-doctrees . $(OUT)/docs
	@echo "$(OUT)/docs/index.html"

.PHONY: docs
docs: ## `make reference`, then `make site`
	@$(MAKE) --no-print-directory reference
	@$(MAKE) --no-print-directory site

.PHONY: docs-test
docs-test: build $(TORCH_DEPENDENCIES) ## run every command of README, tour and guides as it stands there: PAGES="README.md"
	$(BIN)/python docs/commands.py $(PAGES)

# What builds and judges a release, apart from .venv: zig is large.
$(RELEASE_TOOLS): requirements-release.lock $(DEPENDENCIES)
	$(BIN)/python -m venv --clear $(OUT)/release
	$(OUT)/release/bin/pip $(LOCKED) requirements-release.lock
	@touch $@

.PHONY: wheel
wheel: $(RELEASE_TOOLS) ## build both packages, each a source distribution and a wheel from it, into out/dist
	$(OUT)/release/bin/python release/build.py --out $(OUT)/dist

# What a machine with a GPU needs beside Python 3.12, PyTorch and what usually comes with them; it may have no network.
GPU_WHEELS := $(OUT)/gpu
GPU_NEEDS := pydantic pydantic-core annotated-types typing-inspection
GPU_PYTHON ?= python3
GPU_RECORD ?= $(OUT)/gpu-check

.PHONY: gpu-wheels
gpu-wheels: wheel ## put the wheels that `make gpu-check` installs into out/gpu
	rm -rf $(GPU_WHEELS) && mkdir -p $(GPU_WHEELS)
	cp $(OUT)/dist/allrail-*.whl $(GPU_WHEELS)
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
	  --python-version 3.12 --implementation cp --platform manylinux_2_17_x86_64 --dest $(GPU_WHEELS) \
	  $(foreach name,$(GPU_NEEDS),$(shell sed -n 's/^\($(name)==[^ ;]*\).*/\1/p' requirements.lock))
	@du -sh $(GPU_WHEELS)

.PHONY: gpu-check
gpu-check: ## check the runtime on a GPU, in 8 minutes at most, with the wheels of out/gpu: PARTS="staging predict"
	@ls $(GPU_WHEELS)/allrail-*.whl >/dev/null 2>&1 || { \
	  echo "error: $(GPU_WHEELS) has no wheel of allrail" >&2; \
	  echo "hint: run \`make gpu-wheels\` where there is a network, and copy the folder" >&2; exit 1; }
	$(GPU_PYTHON) -m pip install --quiet --no-index --no-deps --no-compile --upgrade \
	  --target $(GPU_WHEELS)/site $(GPU_WHEELS)/*.whl
	PYTHONPATH=$(abspath $(GPU_WHEELS))/site $(GPU_PYTHON) tests/gpu --out $(GPU_RECORD) $(PARTS)

# ADVISORIES names checkouts of RustSec's advisory-db and PyPA's advisory-database, or a folder with both.
.PHONY: release-check
release-check: wheel ## build them, audit the locks, try them without Rust: ADVISORIES="DIR ..."; exits with 1 if anything fails
	$(OUT)/release/bin/python release/check.py --dist $(OUT)/dist \
	  $(foreach folder,$(ADVISORIES),--advisories $(folder))

.PHONY: audit
audit: $(DEPENDENCIES) ## compare the locked dependencies with advisory databases on disk: ADVISORIES="DIR ..."
	$(BIN)/python release/audit.py $(ADVISORIES)

.PHONY: notices
notices: $(DEPENDENCIES) ## check the licences of the crates in the wheel, and write THIRD-PARTY-NOTICES.txt
	$(BIN)/python release/notices.py

.PHONY: demo
demo: ## three schedulers on 512 NPUs: a table, a picture, a report
	@$(MAKE) --no-print-directory --jobs=2 $(QUICK)
	@$(BIN)/allrail compare examples/02-compare-policies/scenario.yaml --out $(OUT)/demo

.PHONY: picture
picture: build ## render README's picture again, with headless Chromium: docs/images/report.png
	$(BIN)/python docs/picture.py

.PHONY: reproduce
reproduce: build ## every published number beside ours; exits with 1 if one is out
	@$(BIN)/allrail reproduce --all --out "$(OUT)/reproduce"

REFERENCE ?= $(or $(ALLRAIL_REFERENCE),../shared/reference)

.PHONY: published
published: build ## numbers of the five sources that have no row of `reproduce`: REFERENCE=DIR; must be 0
	@$(BIN)/python benches/published $(REFERENCE)

.PHONY: recipes
recipes: build ## carry the recipes of docs/extending out on a copy of the tree; takes minutes
	$(BIN)/python docs/recipes.py

.PHONY: lock
lock: PIN := uv pip compile --quiet --generate-hashes --universal --no-emit-index-url --no-header \
  --no-annotate --python-version 3.11
lock: LOCK = $(PIN) pyproject.toml --extra dev
lock: ## pin the Python sets again, with hashes (needs uv)
	$(LOCK) -o requirements.lock
	$(LOCK) --extra torch --extra ray --extra tune -c requirements.lock -o requirements-torch.lock
	$(LOCK) --extra torch --extra ray --extra tune --extra frameworks -c requirements-torch.lock \
	  -o requirements-frameworks.lock
	$(LOCK) --extra torch --extra ray --extra tune --extra frameworks --group apply \
	  -c requirements-frameworks.lock -o requirements-apply.lock
	$(LOCK) --extra docs -c requirements-torch.lock -o requirements-docs.lock
	$(LOCK) --extra keras --group keras -c requirements.lock -o requirements-keras.lock
	$(PIN) --group release -c requirements-docs.lock -o requirements-release.lock

.PHONY: clean
clean: ## remove what the other verbs made
	rm -rf $(VENV) $(OUT) target .mypy_cache .ruff_cache .pytest_cache .hypothesis
