# The commands a person runs; CI runs the same ones.
.PHONY: demo test test-services test-grafana fuzz lint bench bench-server soak soak-server doc clean models venv nsys services

RUN ?= runs/demo

# Set-up and the main job: profile the embedded model, write a run and a report.
demo:
	@scripts/setup.sh build
	cargo build -q -p candlescope-cli
	@rm -rf $(RUN)
	target/debug/candlescope profile --model embedded --out $(RUN)
	@echo; echo "Open $(RUN)/report.html in a browser, or: target/debug/candlescope export perfetto $(RUN)"

# One choice of features for all tests: another one would build candle and Arrow anew.
TESTS = CANDLESCOPE_PYTHON=$(CURDIR)/.venv/bin/python cargo test --workspace --no-fail-fast \
	--features candlescope-tests/nvtx,candlescope-tests/services,candlescope-server/services

# Set-up and every test that a machine without a GPU can run, those against real servers included.
test: models venv nsys services
	$(TESTS)
	cargo check -q -p candlescope --no-default-features
	cargo check -q -p candlescope-exporters --no-default-features
	cargo check -q -p candlescope-collectors --no-default-features

# The tests against a real Jaeger, Prometheus and Grafana's own checks, and the server under load while they fail.
test-services: venv services
	$(TESTS) --test prometheus --test otlp_jaeger --test server --test cost --test long_run

# The dashboards through Grafana's own server, which takes a quarter of an hour to build: apart from the other tests for that alone.
test-grafana: services
	@tests/services/grafana.sh >/dev/null
	$(TESTS) --test prometheus -- --ignored --nocapture

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

lint:
	@scripts/setup.sh build
	cargo fmt --all --check
	cargo clippy -q --workspace --all-targets --features candlescope-tests/services,candlescope-server/services -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -q --workspace --no-deps
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check; else echo "lint: cargo-deny is not installed, licences and advisories were not checked"; fi

# All figures of candlescope itself, beside its peers: prints the tables and writes target/bench/overhead.json. About ten minutes, mostly building.
bench:
	@scripts/setup.sh test
	@tests/bench/run.sh

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
		$(TESTS) --test long_run -- --nocapture

# What each exporter costs the example server, about a quarter of an hour.
bench-server: venv services
	CANDLESCOPE_COST_ROUNDS=8 CANDLESCOPE_COST_SECONDS=12 $(TESTS) --test cost -- --nocapture

# A real model (93 MB) and a Python with DuckDB and Polars, both kept out of git.
models:
	@scripts/setup.sh test
	@tests/fetch-smollm2.sh

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

clean:
	cargo clean
	rm -rf runs .venv .models .nsys .services
