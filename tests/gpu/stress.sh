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
[ "$failed" -eq 0 ] || { head -100 "$out/stress.txt"; exit 1; }
