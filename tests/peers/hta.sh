#!/bin/sh
# Opens a run with HolisticTraceAnalysis and TraceLens, as exported for them, and compares their figures with those of
# `candlescope analyze`. Without a run, a synthetic one is made, which needs no GPU:
#
#     tests/peers/hta.sh [RUN]
#
# The tools are installed from PyPI into target/peers/hta, because HTA needs an older pandas than our other tools.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
place="$root/target/peers/hta"
candlescope=${CANDLESCOPE_BINARY:-$root/target/debug/candlescope}
venv=${CANDLESCOPE_HTA_VENV:-$place/venv}

if ! [ -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import hta' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement "$root/tests/peers/hta-requirements.txt"
fi
if ! [ -x "$candlescope" ]; then
    echo "hta.sh: $candlescope is missing: cargo build -p candlescope-cli, or name it in CANDLESCOPE_BINARY" >&2
    exit 3
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run=${1:-}
if [ -z "$run" ]; then
    run="$work/run"
    GPU=1 cargo run --quiet --manifest-path "$root/Cargo.toml" -p candlescope-analysis --example synthetic_run \
        -- "$run" >/dev/null
fi
mkdir "$work/trace"
"$candlescope" export kineto "$run" --out "$work/trace/rank0.json.gz"
"$candlescope" analyze "$run" --json --top 0 --with-warmup >"$work/ours.json"
HTA_DISABLE_NS_ROUNDING=1 "$venv/bin/python" "$root/tests/peers/hta_figures.py" "$work/trace" "$work/ours.json"

# PyPI's `tracelens` is another project: install AMD's from its repository into the same environment to try it.
if [ -x "$venv/bin/TraceLens_generate_perf_report_pytorch" ]; then
    "$venv/bin/TraceLens_generate_perf_report_pytorch" --profile_json_path "$work/trace/rank0.json.gz" \
        --output_csvs_dir "$work/tracelens" >"$work/tracelens.log" 2>&1 || {
        tail -20 "$work/tracelens.log" >&2
        exit 1
    }
    echo "TraceLens: $(ls "$work/tracelens" | tr '\n' ' ')"
    head -6 "$work/tracelens/gpu_timeline.csv"
else
    echo "hta.sh: TraceLens is not there: $venv/bin/pip install git+https://github.com/AMD-AGI/TraceLens" >&2
fi
