#!/usr/bin/env bash
# Hardware counters of a decode step by path, on a CUDA device with Nsight Compute: one minute.
# Usage: tests/gpu/ncu.sh
#   BIN    folder with `candlescope` and `candlescope-cuda`, built with the feature nvtx (default: the ones on the PATH)
#   OUT    folder for results (default: target/bench)
#   MODEL  config:tinyllama-1.1b unless told otherwise
# Writes $OUT/ncu.json and prints the table. Fails unless the bytes that single-kernel products of matrices moved are
# within 5 % of the bytes that they should move.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench}
model=${MODEL:-config:tinyllama-1.1b}
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
candlescope doctor | grep -i -E 'nsight compute|permission' || true
profile() { # RUN
  echo candlescope-cuda profile --device cuda:0 --model "$model" --prompt-tokens 16 --max-new-tokens 4 --repeats 1 \
    --warmup 0 --nvtx --gpu-timing off --no-progress --out "$1"
}
# shellcheck disable=SC2046 # words of a command
candlescope ncu --path 'decode/*/mlp' --launches 40 --out "$scratch/table" --run "$scratch/a" -- $(profile "$scratch/a") \
  >"$scratch/table.txt"
grep -n -A40 '^Counters of' "$scratch/table.txt" | cut -d- -f2- || { cat "$scratch/table.txt"; exit 1; }
# shellcheck disable=SC2046
candlescope ncu --path 'decode/*/mlp' --launches 40 --out "$scratch/json" --run "$scratch/b" --json \
  -- $(profile "$scratch/b") >"$out/ncu.json"
python3 - "$out/ncu.json" <<'PY'
import json, sys
counters = json.load(open(sys.argv[1]))["counters"]
assert counters["matched"] == counters["kernels"] == 40, (counters["matched"], counters["kernels"])
products = [row for row in counters["rows"] if row["path"].endswith("_proj") and row["expected_bytes"]]
assert products, "no product of matrices is a single kernel"
for row in products:
    ratio = row["dram_bytes"] / row["expected_bytes"]
    print(f"{row['path']}: moved {row['dram_bytes']:,.0f} B, expected {row['expected_bytes']:,.0f} B, ratio {ratio:.3f}")
    assert 0.95 < ratio < 1.05, row
PY
