#!/bin/sh
# Takes all figures and writes target/bench/overhead.json. Ten minutes on two cores, most of it building.
#
#   tests/bench/run.sh          everything; the soak run in its twenty-second form
#   SOAK=600 tests/bench/run.sh with the ten-minute one
#
# Close other programs: the machine's load is noted in every result.
set -eu
cd "$(dirname -- "$0")/../.."
cargo=${CARGO:-cargo}
bin=${CARGO_TARGET_DIR:-target}/debug
soak=${SOAK:-20}

# The nvtx crate generates its bindings with libclang. Without it that peer is left out and the table says so.
peers=peers
have_libclang() { [ -n "${LIBCLANG_PATH:-}" ] || ldconfig -p 2>/dev/null | grep -q libclang || ls /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1; }
if ! have_libclang && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get install -y --no-install-recommends libclang-dev >/dev/null 2>&1 || true
fi
if have_libclang; then
    peers=nvtx
else
    echo "bench: no libclang, so nvtx's layer is not measured (Debian: apt-get install libclang-dev)" >&2
fi

# The peers need other features of libraries below candle, so they are built separately; the rest is built together with
# the command line, so that both share one build of candle.
$cargo build -q -p candlescope-bench --no-default-features --features "$peers" --bin overhead --bin summary
$cargo build -q -p candlescope-cli -p candlescope-bench --bin throughput --bin decode --bin soak

"$bin/overhead"
"$bin/throughput"
if [ -n "${CANDLESCOPE_SMOLLM2:-}" ] || tests/fetch-smollm2.sh >/dev/null; then
    "$bin/decode"
    "$bin/decode" --implementation instrumented
else
    echo "bench: no SmolLM2, so decode is not measured" >&2
fi
if [ "$soak" -ge 60 ]; then
    "$bin/soak" --seconds "$soak"
else
    "$bin/soak" --seconds "$soak" --rotate 2 --budget 1 --growth 8
fi
"$bin/summary"
