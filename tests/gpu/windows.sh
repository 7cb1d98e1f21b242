#!/usr/bin/env bash
# Short windows soon after each other, in several processes at once: crashes, lost records, windows left out. Four
# minutes. Usage: tests/gpu/windows.sh [SECONDS]
#   BINS     folders with `candlescope-cuda`, compared in turns (default: the one on the PATH)
#   OUT      folder for results (default: target/bench)
#   DEVICE   cuda:0 unless told otherwise
#   PROCESSES at once (default: 5)
# Each folder has two turns of SECONDS (default 40). Copies of logits to pageable memory take several parts here, and go
# on while windows end. Writes $OUT/windows.txt, a line a folder, and prints what crashes said. Fails if anything crashed
# or was lost with the last folder.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bins=${BINS:-$(dirname "$(command -v candlescope-cuda)")}
out=${OUT:-$root/target/bench}
device=${DEVICE:-cuda:0}
processes=${PROCESSES:-5}
seconds=${1:-40}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$out"
worker() { # FOLDER LIST UNTIL
  local take=0 dir
  while [ "$SECONDS" -lt "$3" ]; do
    take=$((take + 1)) dir=$2.$BASHPID.$take
    "$1/candlescope-cuda" profile --engine candle --device "$device" --no-progress --warmup 1 --seed 1 \
      --model config:qwen2.5-0.5b --dtype f32 --prompt-tokens 24 --max-new-tokens 8 --repeats 3 --ignore-eos --cupti=1/6 \
      --out "$dir" >"$dir.log" 2>&1
    echo "$? $(python3 - "$dir/run.json" <<'P'
import json, sys
try:
    k = json.load(open(sys.argv[1]))["gpu"]["kernels"]
    print(k["windows"], k.get("windows_missed", 0), k["recorded"], k["dropped"])
except (OSError, KeyError, ValueError):
    print("0 0 0 0")
P
)" >>"$2"
    cat "$dir/crash.txt" 2>/dev/null >>"$2.crashes"
    rm -rf "$dir"
  done
}
for turn in 1 2; do
  n=0
  for bin in $bins; do
    n=$((n + 1)) until=$((SECONDS + seconds))
    for _ in $(seq "$processes"); do worker "$bin" "$scratch/$n" "$until" & done
    wait
  done
done
: >"$out/windows.txt"
n=0
for bin in $bins; do
  n=$((n + 1))
  awk -v bin="$bin" '{ runs++; crashed += $1 != 0; windows += $2; missed += $3; recorded += $4; lost += $5; losing += $5 > 0 }
    END { printf "%s: %d runs, %d crashed, %d with losses; %d windows, %d left out; %d records, %d lost\n",
      bin, runs, crashed, losing, windows, missed, recorded, lost; exit crashed > 0 || lost > 0 }' "$scratch/$n" |
    tee -a "$out/windows.txt"
  failed=${PIPESTATUS[0]}
  head -40 "$scratch/$n.crashes" 2>/dev/null
done
exit "$failed"
