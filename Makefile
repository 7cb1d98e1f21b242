# The commands a person runs; CI runs the same ones.
.PHONY: demo lab fmt test test-slow test-services test-spark test-grafana test-models-without-spans test-candle-examples test-candle-onnx dist gallery instructions lint check-features check-msrv check-docs check-package check-elsewhere check-semver \
	bench bench-server compare-false-alarms hot-path hostile fuzz fuzz-coverage loom miri soak soak-server doc pictures clean models venv nsys services book

# From nothing, our own crates are built a fifth faster without the state for later builds, and this is what most builds here do. Whoever
# changes code says CARGO_INCREMENTAL=1, or calls cargo.
export CARGO_INCREMENTAL ?= 0

RUN ?= runs/demo

# Set-up and the main job: profile the embedded model, write a run and a report. What the demo does not use is not built (hub, images, GPU, OTLP,
# Prometheus, Nsight's profiles): that takes minutes on two cores, and each says how to build it.
demo:
	@scripts/setup.sh build
	cargo build -q -p candlescope-cli --no-default-features
	@rm -rf $(RUN)
	target/debug/candlescope profile --model embedded --out $(RUN)
	@echo; echo "Open $(RUN)/report.html in a browser, or: target/debug/candlescope export perfetto $(RUN)"

# A short form of each suite of benchmarks on the embedded model, into STUDY, which must be empty or absent: under three minutes once built.
STUDY ?= runs/lab
lab:
	@scripts/setup.sh build
	cargo build -q -p candlescope-cli --no-default-features --features lab
	@rm -rf runs/lab
	target/debug/candlescope bench suite --quick --out $(STUDY)
	@echo; echo "Open $(STUDY)/report.html in a browser"

# One choice of features for all tests: another one would build candle and Arrow anew. A tool that a test needs must be there.
CHOICE = --features candlescope-tests/nvtx,candlescope-tests/services,candlescope-server/services
NEEDED = CANDLESCOPE_REQUIRE=1 CANDLESCOPE_PYTHON=$(CURDIR)/.venv/bin/python
TESTS = $(NEEDED) cargo test --workspace --no-fail-fast $(CHOICE)

# The command, with the same choice.
BUILD = cargo build -q --workspace $(CHOICE)

# Set-up and every test that a machine without a GPU can run, those against real servers included.
test: models venv nsys services
	python3 -m unittest discover -s .github/actions/gate -q
	python3 -m unittest discover -s scripts -q
	$(NEEDED) tests/streams.py --workspace $(CHOICE)
	cargo check -q -p candlescope --no-default-features
	cargo check -q -p candlescope-exporters --no-default-features
	cargo check -q -p candlescope-collectors --no-default-features

# Tests that take minutes each, which `make test` leaves out so that it stays below 45 minutes on two cores: notebooks on a folder of a
# thousand runs and on runs that lack something, the server while everything around it fails, an archiver that is stopped at every change.
test-slow: models venv services
	$(TESTS) --test notebooks --test long_run --test archive -- --ignored
	CANDLESCOPE_ENGINES=all $(TESTS) --test engines

# The tests against a real Jaeger, Prometheus and Grafana's own checks, and the server under load while they fail.
test-services: venv services
	$(TESTS) --test prometheus --test otlp_jaeger --test server --test cost
	$(TESTS) --test long_run -- --ignored

# Takes the instructions that an interval costs now for the figures that `make test` holds it to.
instructions:
	@scripts/setup.sh test
	UPDATE_INSTRUCTIONS=1 $(TESTS) --test instructions

# Every view and query in Apache Spark itself in place of Sail, which `make test` asks: needs Java 17 and 450 MB of PyPI's packages.
test-spark: models venv
	@command -v java >/dev/null || { echo "test-spark: java is not installed; on Debian and Ubuntu install default-jre-headless"; exit 1; }
	python3 -m venv target/spark && target/spark/bin/pip install -q pyspark==4.3.0 duckdb==2.0.0
	CANDLESCOPE_SPARK=plain CANDLESCOPE_REQUIRE=1 CANDLESCOPE_PYTHON=$(CURDIR)/target/spark/bin/python \
		cargo test --workspace $(CHOICE) --test engines -- three_engines
	CANDLESCOPE_SPARK=plain CANDLESCOPE_REQUIRE=1 CANDLESCOPE_PYTHON=$(CURDIR)/target/spark/bin/python \
		cargo test --workspace $(CHOICE) --test archive -- engines

# The dashboards through Grafana's own server, which takes a quarter of an hour to build: apart from the other tests for that alone.
test-grafana: services
	@tests/services/grafana.sh >/dev/null
	$(TESTS) --test prometheus -- --ignored --nocapture

# candle's models that make no spans, with candle-nn as `candlescope trace-candle-nn` writes it: candle is built anew, some minutes.
# UPDATE_DOCS=1 writes what they show into docs/models.md.
test-models-without-spans:
	@scripts/setup.sh test
	$(BUILD) --bin candlescope
	tests/without_spans/run.sh

# candle's own examples qwen and t5 as published, with two lines more: cargo downloads and builds them, ten minutes of a core.
test-candle-examples:
	@scripts/setup.sh test
	$(BUILD) --bin candlescope
	tests/candle_examples/run.sh "$$(tests/candle_examples/build.sh)" target/debug/candlescope target/candle-examples

# `bench variants` with candle-onnx: apart from the other tests, because its build needs protoc and builds candle anew, some minutes.
test-candle-onnx: venv
	@scripts/setup.sh candle-onnx
	$(TESTS),candlescope-models/candle-onnx,candlescope-cli/candle-onnx --test candle_onnx
	$(TESTS),candlescope-models/candle-onnx,candlescope-cli/candle-onnx --test bench_variants -- candle_onnx

# Mutated inputs for every reader and parser, an hour each: panics, aborts, hangs over 20 s and more than 512 MB all fail it. SECONDS=60
# shortens it, TARGET=spans chooses one, SEED=2 makes other inputs. Models have their own mutations.
SECONDS ?= 3600
SEED ?= 1
fuzz:
	@scripts/setup.sh build
	cargo build -q -p candlescope-cli -p candlescope-fuzz
	target/debug/fuzz --seconds $(SECONDS) --seed $(SEED) $(if $(TARGET),--target $(TARGET))
	CANDLESCOPE_FUZZ_TIMES=$$(($(SECONDS) / 4 + 1)) timeout $$(($(SECONDS) * 4 + 600)) \
		cargo test -p candlescope-models --test hostile -- --nocapture mutated

# The same targets under libFuzzer, which sees what code an input reaches: an hour each, with the address sanitizer. Needs a nightly
# compiler and cargo-fuzz. What is found is kept in target/fuzz-corpus, inputs that fail in target/fuzz-artifacts.
COVERED = $(filter-out command-line inputs-yaml,$(notdir $(wildcard tests/fuzz/corpus/*)))
FUZZED = target/fuzz-coverage/$(shell rustc -vV | sed -n 's/^host: //p')/release/target
fuzz-coverage:
	@cargo +nightly fuzz --version >/dev/null 2>&1 || \
		{ echo "fuzz-coverage: rustup toolchain install nightly, then cargo install cargo-fuzz"; exit 1; }
	cargo +nightly fuzz build --fuzz-dir tests/fuzz/coverage --target-dir target/fuzz-coverage target
	for target in $(or $(TARGET),$(COVERED)); do \
		mkdir -p target/fuzz-corpus/$$target target/fuzz-artifacts && echo "== $$target" && \
		ASAN_OPTIONS=detect_odr_violation=0 CANDLESCOPE_FUZZ_TARGET=$$target $(FUZZED) target/fuzz-corpus/$$target tests/fuzz/corpus/$$target \
			-max_total_time=$(SECONDS) -seed=$(SEED) -rss_limit_mb=2048 -timeout=20 -max_len=65536 \
			-artifact_prefix=target/fuzz-artifacts/$$target- || exit 1; \
	done

# Files that a macro declares from a list, which `cargo fmt` does not see.
LISTED = analysis/figures/src/verdict/*.rs analysis/findings/src/bottlenecks/*.rs analysis/report/src/advice/words/*.rs

fmt:
	cargo fmt --all
	rustfmt $(LISTED)

lint:
	@scripts/setup.sh build
	cargo fmt --all --check
	rustfmt --check $(LISTED)
	cargo clippy -q --workspace --all-targets --features candlescope-tests/services,candlescope-server/services -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -q --workspace --no-deps
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check; else \
		echo "lint: NOT COMPLETE: licences and advisories were not checked, because cargo-deny is not installed" >&2; \
		test -z "$$REQUIRE_DENY"; fi

# Archives of the command line as a release has them, in dist/: TARGETS="x86_64-unknown-linux-musl" makes only that one.
TARGETS ?=
dist:
	@scripts/setup.sh build
	scripts/dist.sh $(TARGETS)

# The crates that are published, in the order in which they depend on each other.
PUBLISHED = candlescope-markers candlescope-work candlescope-document candlescope-schema candlescope-prompts candlescope-charts candlescope-core candlescope-collectors candlescope-exporters candlescope-reader candlescope-figures candlescope-ranks candlescope-sql candlescope-archive candlescope-predict candlescope-compare candlescope-trends candlescope-findings candlescope-report candlescope-analysis candlescope candlescope-models candlescope-load candlescope-monitor candlescope-lab candlescope-optimise candlescope-inject candlescope-cli

# Each feature by itself and all pairs of them, without those that need CUDA's toolkit, libclang or protoc (cargo install cargo-hack).
check-features:
	cargo hack check -q $(foreach c,$(filter-out candlescope-cli candlescope-models candlescope-lab,$(PUBLISHED)),-p $(c)) --feature-powerset --depth 2 --exclude-features nvtx
	cargo hack check -q -p candlescope-lab --feature-powerset --depth 2 --exclude-features cuda,candle-onnx --exclude-all-features
	cargo hack check -q -p candlescope-models -p candlescope-cli --each-feature --exclude-features cuda,nvtx,candle-onnx --exclude-all-features

# With the oldest Rust that each crate's Cargo.toml promises, which rustup fetches: what stands on candle, what records, and the markers,
# which libraries of others link. Of the facade without candle, whose need is the workspace's.
RECORDING = candlescope-work candlescope-schema candlescope-core candlescope-collectors candlescope-exporters candlescope
rust_of = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' $(1)/Cargo.toml)
MSRV = $(call rust_of,.)
MSRV_RECORDING = $(call rust_of,sdk/core)
MSRV_MARKERS = $(call rust_of,sdk/markers)
check-msrv:
	rustup toolchain install $(MSRV) $(MSRV_RECORDING) $(MSRV_MARKERS) --profile minimal
	@for c in work schema collectors exporters sdk/candlescope; do grep -q '^rust-version = "$(MSRV_RECORDING)"' $$c/Cargo.toml || \
		{ echo "check-msrv: rust-version of $$c is not that of sdk/core"; exit 1; }; done
	cargo +$(MSRV) check -q $(foreach c,$(PUBLISHED),-p $(c)) --target-dir target/msrv
	cargo +$(MSRV_RECORDING) check -q $(foreach c,$(RECORDING),-p $(c)) --target-dir target/msrv-recording \
		--features candlescope/prometheus,candlescope/gpu,candlescope/stacks,candlescope/otlp-grpc
	scripts/check_markers_msrv.sh $(MSRV_MARKERS)

# As docs.rs builds: nightly, the features of `package.metadata.docs.rs`.
check-docs:
	RUSTDOCFLAGS="--cfg docsrs -D warnings" cargo +nightly doc -q --no-deps --target-dir target/docsrs \
		$(foreach c,$(PUBLISHED),-p $(c)) \
		--features candlescope/candle,candlescope/prometheus,candlescope/gpu,candlescope/stacks,candlescope/otlp-grpc,candlescope-report/nsys

# What would be uploaded, without the build: dependencies among ourselves are not on crates.io before the first release.
check-package:
	@for c in $(PUBLISHED); do cargo package -q -p $$c --list --allow-dirty >/dev/null && echo "$$c: ok" || exit 1; done
	cargo package -q $(foreach c,$(PUBLISHED),-p $(c)) --no-verify --allow-dirty

# What compiles on other systems than Linux on x86-64, without a warning. TARGET=x86_64-pc-windows-gnu checks for another one from here:
# the command line, too, where a C compiler for it is there, because libraries in C are built even for a check. CC_x86_64_pc_windows_gnu
# names another compiler than that of Debian.
TARGET ?=
C_COMPILER_x86_64-pc-windows-gnu = x86_64-w64-mingw32-gcc
C_COMPILER_aarch64-unknown-linux-gnu = aarch64-linux-gnu-gcc
# For macOS it is zig, where that is there.
ZIG_IF_THERE = if command -v "$${ZIG:-zig}" >/dev/null; then settings=$$(scripts/apple_sdk.sh target/apple) && eval "$$settings"; fi;
ELSEWHERE = cargo check -q $(if $(TARGET),--target $(TARGET))
check-elsewhere: export RUSTFLAGS = -D warnings
check-elsewhere:
	$(ELSEWHERE) -p candlescope-core -p candlescope --no-default-features
	$(ELSEWHERE) -p candlescope --no-default-features --features perfetto,chrome,prometheus
	@$(if $(filter aarch64-apple-darwin,$(TARGET)),$(ZIG_IF_THERE)) \
	if [ -z "$(TARGET)" ] || command -v "$${CC_$(subst -,_,$(TARGET)):-$(C_COMPILER_$(TARGET))}" >/dev/null; then \
		echo "$(ELSEWHERE) -p candlescope-cli"; $(ELSEWHERE) -p candlescope-cli; \
	else echo "check-elsewhere: candlescope-cli was NOT checked: there is no C compiler for $(TARGET) (CC_$(subst -,_,$(TARGET)) names one)"; fi

# Those that promise names, and those whose names the facade shows; what these hide is not compared. A test holds the list.
PROMISED = candlescope-markers candlescope-schema candlescope-core candlescope-collectors candlescope-exporters candlescope candlescope-models candlescope-analysis

# Against the newest release on crates.io (cargo install cargo-semver-checks).
check-semver:
	cargo semver-checks $(foreach c,$(PROMISED),-p $(c))

# All figures of candlescope itself, beside its peers: prints the tables and writes target/bench/overhead.json. About ten minutes, mostly building.
bench:
	@scripts/setup.sh test
	@tests/bench/run.sh

# How often `compare --run` is wrong on this machine: 200 comparisons of a program with itself, 60 with a layer made slower by 5 % of
# the step. An hour or more; what was stopped goes on. ALARMS is where results go.
ALARMS ?= target/compare-false-alarms
compare-false-alarms:
	@scripts/setup.sh test
	$(BUILD) --bin candlescope --bin slow_layer --bin compare_false_alarms
	target/debug/compare_false_alarms $(ALARMS)

# The hot path of this tree against that of BASE, in turns.
BASE ?= HEAD~1
hot-path:
	tests/bench/hot_path.sh $(BASE)

# The long forms of the attacks that `make test` has in short: a hundred kills (of what records, and of an archiver), every fault of the
# disk, a hundred races of processes, and a system that gives no more threads.
hostile:
	CANDLESCOPE_KILLS=100 CANDLESCOPE_FAULTS=all CANDLESCOPE_RACES=100 $(TESTS) --test parquet_kill --test two_processes --test archive_processes -- --nocapture
	CANDLESCOPE_FAULTS=all $(TESTS) --lib parquet::faults
	tests/hostile/no_threads.sh

# What threads share without a lock, under model checkers: half a minute, and a minute to build them.
loom:
	cargo run -q --manifest-path tests/models/Cargo.toml --target-dir target/models --bin loom
	SHUTTLE_SILENCE_WARNINGS=1 cargo run -q --manifest-path tests/models/Cargo.toml --target-dir target/models --bin shuttle

# The core's and the schema's tests that ask the system nothing, under Miri, where a nightly toolchain has it (rustup +nightly component add miri rust-src).
# The others read the time-stamp counter and call the system directly, which Miri does not know.
MIRI_TESTS ?= ring_room:: control:: names:: layer::cache probe:: traceparent:: vocabulary:: estimate::
miri:
	@if cargo +nightly miri --version >/dev/null 2>&1; then \
		MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --target-dir target/miri -p candlescope-core -p candlescope-schema --lib -- $(MIRI_TESTS); \
	else echo "miri: not installed, nothing was checked (rustup +nightly component add miri rust-src)"; fi

# The ten-minute run at 100,000 intervals a second.
soak:
	@scripts/setup.sh build
	cargo build -q -p candlescope-bench --bin soak
	target/debug/soak --seconds 600

# Half an hour of load on the example server with every exporter on, while what they talk to is killed and the clock is set. With a
# real model on all cores; MODEL=embedded THREADS=1 is one with steps of a third of a millisecond.
MODEL ?= $(CURDIR)/.models/SmolLM2-135M-Instruct.Q4_1.gguf
THREADS ?= $(shell nproc)
soak-server: models venv services
	CANDLESCOPE_SOAK_SECONDS=1800 CANDLESCOPE_SOAK_MODEL=$(MODEL) RAYON_NUM_THREADS=$(THREADS) \
		$(TESTS) --test long_run -- --ignored --nocapture

# What each exporter costs the example server, about a quarter of an hour.
bench-server: venv services
	CANDLESCOPE_COST_ROUNDS=8 CANDLESCOPE_COST_SECONDS=12 $(TESTS) --test cost -- --nocapture

# Real models (93 and 91 MB) and a Python with DuckDB and Polars, both kept out of git.
models:
	@scripts/setup.sh test
	@tests/fetch-smollm2.sh
	@tests/fetch-minilm.sh

venv:
	@scripts/setup.sh test
	@tests/python/venv.sh

# NVIDIA's Nsight Systems (190 MB to download), unpacked into .nsys for the tests that run under it; no GPU needed.
nsys:
	@scripts/setup.sh test
	@tests/nsys/setup.sh

# Jaeger (built, five minutes of two cores), Prometheus and a library that sets clocks, unpacked into .services.
services:
	@scripts/setup.sh test
	@tests/services/prometheus.sh >/dev/null
	@tests/services/faketime.sh >/dev/null
	@tests/otlp/jaeger.sh >/dev/null

doc:
	cargo doc --workspace --no-deps --open

# The pages of docs/ as a book with search: target/book/index.html. mdBook is built into target/tools where that version is missing,
# four minutes.
MDBOOK = 0.5.4
book:
	@target/tools/bin/mdbook --version 2>/dev/null | grep -qx 'mdbook v$(MDBOOK)' || \
		cargo install -q --locked mdbook --version $(MDBOOK) --root target/tools
	target/tools/bin/mdbook build
	@echo "Open target/book/index.html"

# The pictures in docs/images, from real runs, tools and servers. Installs what that takes from Debian and PyPI; ten minutes.
# PICTURES="perfetto nsight" makes only those.
pictures: models nsys services
	scripts/pictures.sh $(PICTURES)

# What docs/gallery shows, from runs of this machine and of cli/tests/recorded: three minutes once built, on a machine at rest.
gallery:
	@scripts/setup.sh build
	scripts/gallery.sh

clean:
	cargo clean
	rm -rf runs .venv .models .nsys .services
