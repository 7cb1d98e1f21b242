#!/usr/bin/env bash
# The example server with continuous batching on a CUDA device against the one that answers one request after the other, for
# more and more clients. Three minutes.
# Usage: tests/gpu/batching.sh
#   BIN    folder with `candlescope-server` and `load`, built with --features candlescope-server/cuda
#   OUT    folder for results (default: target/bench/batching)
#   MODEL  config:smollm2-135m unless told otherwise; SECONDS_EACH (8); CLIENTS ("1 8 32 64")
# Writes $OUT/batching.txt: server, clients, and what `load` measured as JSON (seconds); and the report of the observed server's run
# to $OUT/account.txt. Fails if a load does.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=${BIN:-$root/target/release}
out=${OUT:-$root/target/bench/batching}
model=${MODEL:-config:smollm2-135m} seconds=${SECONDS_EACH:-8} clients=${CLIENTS:-1 8 32 64}
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$scratch"' EXIT
export RAYON_NUM_THREADS=1
: >"$out/batching.txt"
failed=0

start() { # NAME ARGUMENTS: waits until it listens
  local name=$1 log=$scratch/$1.log
  shift
  "$bin/candlescope-server" --model "$model" --device cuda:0 --listen 127.0.0.1:0 --queue 256 "$@" 2>"$log" &
  pid=$!
  until grep -q "^listening on" "$log"; do
    kill -0 $pid || { cat "$log" >&2; exit 1; }
    sleep 0.2
  done
  url=$(sed -n "s/^listening on //p" "$log")
}
measure() { # NAME: all numbers of clients
  local n
  "$bin/load" --server "$url" --seconds 3 --clients 8 --max-tokens 64 --prompt-tokens 64 >/dev/null
  for n in $clients; do
    "$bin/load" --server "$url" --seconds "$seconds" --clients "$n" --max-tokens 64 --prompt-tokens 64 >"$scratch/load.json" || failed=1
    python3 - "$scratch/load.json" "$1" "$n" <<'P' | tee -a "$out/batching.txt"
import json, sys
print(sys.argv[2], "clients", sys.argv[3], json.dumps(json.load(open(sys.argv[1]))))
P
  done
}
stop() {
  kill -TERM $pid
  wait $pid
  tail -n 3 "$scratch/$1.log"
}

start one_by_one --unobserved && measure one_by_one && stop one_by_one
start batched --unobserved --max-num-seqs 64 --max-model-len 1024 && measure batched && stop batched
start graph --unobserved --max-num-seqs 64 --max-model-len 1024 --cuda-graph && measure graph && stop graph
start graph_observed --max-num-seqs 64 --max-model-len 1024 --cuda-graph --parquet "$out/run" && measure graph_observed && stop graph_observed
[ ! -x "$bin/candlescope-cuda" ] || "$bin/candlescope-cuda" report "$out/run" --terminal >"$out/account.txt" 2>&1 ||
  "$bin/candlescope-cuda" report "$out/run" >"$out/account.txt" 2>&1
exit $failed
