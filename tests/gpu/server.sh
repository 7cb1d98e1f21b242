#!/usr/bin/env bash
# The example server on a CUDA device: its throughput with everything on against without candlescope, in turns, and a capture
# of the next steps under load, with every interval's GPU time and the kernels.
# Usage: tests/gpu/server.sh
#   BIN    folder with the programs `candlescope`, `candlescope-server` and `load`, built with --features candlescope-server/cuda
#   OUT    folder for results (default: target/bench)
#   MODEL  config:smollm2-135m unless told otherwise; ROUNDS of 2 x SECONDS_EACH (20 and 5)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=${BIN:-$root/target/release}
out=${OUT:-$root/target/bench}
model=${MODEL:-config:smollm2-135m} rounds=${ROUNDS:-20} seconds=${SECONDS_EACH:-5}
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$scratch"' EXIT
export RAYON_NUM_THREADS=1

start() { # NAME ARGUMENTS: waits until it listens and prints its address
  local name=$1 log=$scratch/$1.log
  shift
  "$bin/candlescope-server" --model "$model" --device cuda:0 --listen 127.0.0.1:0 "$@" 2>"$log" &
  pids+=($!)
  until grep -q "^listening on" "$log"; do
    kill -0 $! || { cat "$log" >&2; exit 1; }
    sleep 0.2
  done
  sed -n "s/^listening on //p" "$log" >"$scratch/$name.url"
}
load() { # NAME SECONDS
  "$bin/load" --server "$(cat "$scratch/$1.url")" --seconds "$2" --clients 2 --max-tokens 64 --prompt-tokens 64
}

ask() { # METHOD URL: the answer, whatever its status
  python3 - "$@" <<'PY'
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[2], method=sys.argv[1], headers={"Authorization": "Bearer t"})
try:
    print(urllib.request.urlopen(request, timeout=60).read().decode())
except urllib.error.HTTPError as refused:
    print(refused.read().decode())
PY
}

rm -f "$out/server_rounds.jsonl" "$out/server_capture.json"
pids=()
start observed --prometheus 19464 --parquet "$scratch/run" --capture-token t --capture-kernels --captures "$scratch/captures"
start bare --unobserved
for name in observed bare; do load $name 5 >/dev/null; done
for round in $(seq "$rounds"); do
  names="observed bare"
  [ $((round % 2)) = 1 ] || names="bare observed"
  for name in $names; do
    load $name "$seconds" | sed "s/^{/{\"server\":\"$name\",\"round\":$round,/" >>"$out/server_rounds.jsonl"
  done
done
python3 - "$out/server_rounds.jsonl" <<'PY' | tee "$out/server.json"
import json, random, statistics, sys
rounds = {}
for line in open(sys.argv[1]):
    seen = json.loads(line)
    rounds.setdefault(seen["round"], {})[seen["server"]] = seen["tokens_per_second"]
ratios = [r["observed"] / r["bare"] for r in rounds.values()]
random.seed(1)
medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(10_000))
print(json.dumps({
    "rounds": len(ratios),
    "tokens_per_second": {who: statistics.median(r[who] for r in rounds.values()) for who in ("observed", "bare")},
    "observed_over_bare": {"median": statistics.median(ratios), "low_95": medians[250], "high_95": medians[9750]},
}))
PY
load observed 25 >"$out/server_capture_load.json" &
sleep 2
url=$(cat "$scratch/observed.url")
# The first attaches CUPTI, for the second it is loaded already.
for again in 1 2; do
  ask POST "$url/debug/capture?steps=50&wait=true" | tee -a "$out/server_capture.json"
done
wait %?load 2>/dev/null || true
run=$(ls -d "$scratch"/captures/* | tail -1)
"$bin/candlescope" report "$run" >"$out/server_capture.txt"
cp "$run/metrics.json" "$out/server_capture_metrics.json"
ask GET http://127.0.0.1:19464/metrics >"$out/server_metrics.txt"
kill -TERM "${pids[@]}"
wait "${pids[@]}" || true
cat "$scratch/observed.log"
