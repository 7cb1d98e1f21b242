#!/usr/bin/env bash
# Suites, the account of the device, and rooflines on a CUDA device: 6 minutes.
# Usage: tests/gpu/suites.sh [suite] [large] [memory] [account] [latency] [lengths]
# By default all but `latency` and `lengths`, those of the 8B shape, which take some minutes more.
#   BIN    folder with `candlescope`, and `candlescope-cuda` beside it (default: the ones on the PATH)
#   OUT    folder for results (default: target/bench)
#   DEVICE cuda:0 unless told otherwise
#   PEAKS  a cache directory with peaks of this device, for measured denominators
# Writes $OUT/suites/*: the files of each study without its runs, and what the commands print.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench}/suites
device=${DEVICE:-cuda:0}
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ -z "${PEAKS:-}" ] || export XDG_CACHE_HOME=$PEAKS
[ $# -gt 0 ] || set -- suite large memory account

study() { # NAME ARGUMENTS
  local name=$1
  shift
  candlescope bench "$@" --device "$device" --no-progress --out "$scratch/$name" | tee "$out/$name.txt"
  mkdir -p "$out/$name"
  (cd "$scratch/$name" && cp -r study.json ./*.csv baseline_metrics.json report.html charts "$out/$name/")
}
suite() {
  study smollm2 suite --model config:smollm2-135m --processes 3 --runs 3 --profiled 1
}
large() {
  study llama-8b throughput --model config:llama-3-8b --batches 1,8,32 --processes 1 --runs 3 --profiled 1
}
latency() {
  study llama-8b-latency latency --model config:llama-3-8b --processes 6 --runs 12 --time-limit 30 --profiled 1
}
lengths() { # Six process starts, for intervals; the time limit bounds the warm-up of requests that take a second each.
  study llama-8b-seqlen seqlen --model config:llama-3-8b --processes 6 --runs 6 --time-limit 30 --profiled 1
}
memory() { # A batch whose keys and values do not fit: it ends with a row, and the one after it is measured.
  study memory throughput --model config:smollm2-135m --batches 1,65536,2 --processes 1 --runs 2 --profiled 0
  grep -q out_of_memory "$out/memory/throughput_results.csv" || grep -q out_of_memory "$out"/memory/results.csv
}
account() {
  candlescope profile --model config:smollm2-135m --device "$device" --cupti=5/50 --max-new-tokens 100 --repeats 6 \
    --no-progress --out "$scratch/run" >"$out/profile.txt"
  candlescope analyze "$scratch/run" | tee "$out/analyze.txt" | head -60
  candlescope analyze "$scratch/run" --json >"$out/analyze.json"
  candlescope roofline "$scratch/run" --out "$out/roofline" >"$out/roofline.txt"
  head -60 "$out/roofline.txt"
  candlescope export kineto "$scratch/run" --out "$out/smollm2.json.gz"
  candlescope export perfetto "$scratch/run" --out "$out/smollm2.pftrace" && xz -3 "$out/smollm2.pftrace"
}

for part in "$@"; do
  echo "== $part"
  "$part"
done
