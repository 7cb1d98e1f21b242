#!/usr/bin/env bash
# Looks for crashes and losses of kernel windows on a CUDA device: five minutes.
# Usage: tests/gpu/stress.sh [SECONDS]
#   BIN      folder with `cupti_stress` (cargo build --example cupti_stress -p candlescope-collectors --features cuda,cupti,host)
#            and, for the last part, `candlescope-cuda`
#   OUT      folder for results (default: target/bench)
# Each part runs for SECONDS (default 30): one thread, four, one that never waits for the device, four while streams,
# contexts and threads come and go, sessions that end within a window, and seven processes on one device. Writes
# $OUT/stress.jsonl, a line a process, and what crashes said into $OUT/stress.txt. Fails if anything crashed or was lost.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench}
seconds=${1:-30}
mkdir -p "$out"
: >"$out/stress.jsonl"
: >"$out/stress.txt"
failed=0
part() { # NAME PROCESSES WORDS…
  local name=$1 processes=$2 pids=() n
  shift 2
  for n in $(seq "$processes"); do
    cupti_stress --sessions 1000 --seconds "$seconds" "$@" >"$out/.stress.$n" 2>"$out/.stress.$n.err" &
    pids+=($!)
  done
  n=0
  for pid in "${pids[@]}"; do
    n=$((n + 1))
    wait "$pid"
    local status=$?
    [ "$status" -eq 0 ] || failed=1
    echo "{\"part\": \"$name\", \"processes\": $processes, \"status\": $status, \"result\": $(cat "$out/.stress.$n" | grep . || echo null)}" |
      tee -a "$out/stress.jsonl"
    [ -s "$out/.stress.$n.err" ] && { echo "== $name, process $n"; cat "$out/.stress.$n.err"; } >>"$out/stress.txt"
  done
  rm -f "$out"/.stress.*
}
part one_thread 1 --threads 1
part four_threads 1 --threads 4
part never_waits 1 --threads 1 --async --kernel-ns 6000
part come_and_go 1 --threads 4 --churn all
part ends_in_window 1 --threads 2 --cut --churn all
part seven_processes 7 --threads 1 --kernel-ns 4000

# Seven profiles on one device, again and again: what a run says of its kernels, and how each program ended.
profiles() {
  local until=$((SECONDS + 2 * seconds)) take=0 pids pid n status
  local words=(--device cuda:0 --model config:tinyllama-1.1b --dtype bf16 --prompt-tokens 128 --max-new-tokens 64 --repeats 6
    --ignore-eos --cupti=10/50 --overhead-probe 8 --batch 8 --no-progress)
  while [ "$SECONDS" -lt "$until" ]; do
    take=$((take + 1)) pids=()
    for n in 1 2 3 4 5 6 7; do
      candlescope-cuda profile "${words[@]}" --out "$scratch/$take-$n" >"$scratch/$take-$n.out" 2>&1 &
      pids+=($!)
    done
    n=0
    for pid in "${pids[@]}"; do
      n=$((n + 1))
      wait "$pid"
      status=$?
      python3 - "$take" "$n" "$status" "$scratch/$take-$n" <<'PYTHON' | tee -a "$out/stress.jsonl"
import json, sys
take, n, status, run = sys.argv[1:]
try:
    kernels = json.load(open(run + "/run.json"))["gpu"]["kernels"]
    result = {key: kernels.get(key) for key in ("windows", "steps", "recorded", "attributed", "late", "dropped", "error")}
except Exception as error:
    result = str(error)
print(json.dumps({"part": "profile", "take": int(take), "process": int(n), "status": int(status), "result": result}))
PYTHON
      if [ "$status" -ne 0 ]; then
        failed=1
        { echo "== profile, take $take, process $n"; tail -20 "$scratch/$take-$n.out"; cat "$scratch/$take-$n/crash.txt"; } \
          >>"$out/stress.txt" 2>/dev/null
      fi
      rm -rf "$scratch/$take-$n" "$scratch/$take-$n.out"
    done
  done
}
if command -v candlescope-cuda >/dev/null; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  profiles
fi
[ "$failed" -eq 0 ] || { head -100 "$out/stress.txt"; exit 1; }
