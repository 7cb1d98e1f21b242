#!/usr/bin/env bash
# Variants, comparison, gate, monitor, tuning, and what a benchmark's request says of the device, on a CUDA device: 6 minutes.
# Usage: tests/gpu/choices.sh [request] [variants] [compare] [gate] [monitor] [tune]      (all by default)
#   BIN          folder with `candlescope`, and `candlescope-cuda` beside it (default: the ones on the PATH)
#   OUT          folder for results (default: target/bench)
#   DEVICE       cuda:0 unless told otherwise
#   MODEL        model of the variants (default: config:gpt2, whose weights are random: no quality)
#   TEXT         text that its quality is measured on, if its weights are real
#   ONNXRUNTIME  ONNX Runtime's library; without it the row `onnx` says that it is missing
# Writes $OUT/choices/*: what the commands print, tables and pages, without runs.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench}/choices
device=${DEVICE:-cuda:0}
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- request variants compare gate monitor tune

keep() { # STUDY NAME: its files without runs
  mkdir -p "$out/$2"
  (cd "$1" && find . -maxdepth 2 -type f -size -2M -not -path './runs/*' | tar c -T - | tar x -C "$out/$2")
}
request() { # Every plain request has the time of its kernels, the memory it needed, the energy where the sensor is fast enough.
  candlescope bench throughput --model config:smollm2-135m --device "$device" --batches 1,16 --processes 2 --runs 6 \
    --profiled 1 --no-progress --out "$scratch/request" | tee "$out/request.txt"
  keep "$scratch/request" request
  candlescope query "select \"case\", profiled, count(*) n, count(device_ns) with_device, count(memory_bytes) with_memory,
    count(energy_mj) with_energy, avg(host_ns)/1e6 host_ms, avg(device_ns)/1e6 device_ms, max(memory_bytes)/1048576 mib,
    avg(energy_mj) mj from results group by \"case\", profiled" "$scratch/request" | tee "$out/request-fields.txt"
}
variants() {
  candlescope bench variants --model "${MODEL:-config:gpt2}" --device "$device" --processes "${PROCESSES:-2}" \
    ${TEXT:+--text "$TEXT"} ${ONNXRUNTIME:+--onnxruntime "$ONNXRUNTIME"} --time-limit "${LIMIT:-4}" --no-progress \
    --out "$scratch/variants" | tee "$out/variants.txt"
  keep "$scratch/variants" variants
}
same="candlescope profile --model config:smollm2-135m --device $device --dtype bf16 --prompt-tokens 64 --max-new-tokens 64"
# All alike, whatever changes: windows of kernels come by time.
same="$same --repeats 4 --warmup 1 --ignore-eos --no-progress --gpu-timing steps"
compare() { # Equal ones, and one whose steps have twice the sequences: exit 0 or 2, then 1.
  local status=0
  candlescope compare --run "$same" "$same" --pairs 8 --no-progress --out "$scratch/equal" --html "$out/equal.html" \
    >"$out/equal.txt" || status=$?
  head -40 "$out/equal.txt"
  echo "equal: exit $status"
  [ $status != 1 ]
  status=0
  candlescope compare --run "$same" "${same/bf16/f32}" --allow dtype --pairs 8 --no-progress --out "$scratch/f32" \
    --html "$out/f32.html" >"$out/f32.txt" || status=$?
  head -40 "$out/f32.txt"
  echo "f32 for bf16: exit $status"
}
gate() {
  local n status=0
  for n in 1 2 3 4 5 6; do $same --out "$scratch/gate/$n" >/dev/null; done
  candlescope gate "$scratch"/gate/[123] --save "$scratch/baseline" | tee "$out/gate.txt" || true
  candlescope gate "$scratch"/gate/[456] --baseline "$scratch/baseline" | tee -a "$out/gate.txt" || status=$?
  echo "gate: exit $status" | tee -a "$out/gate.txt"
}
monitor() { # Beside two runs with a pause between them: the device is seen busy, and idle in the pause.
  (sleep 2; $same --out "$scratch/m1" >/dev/null; sleep 5; $same --out "$scratch/m2" >/dev/null) &
  candlescope monitor --csv "$out/monitor.csv" --overwrite --period 500ms --duration 30s --plain >"$out/monitor.txt"
  wait
  head -5 "$out/monitor.txt"
  tail -12 "$out/monitor.txt"
}
tune() {
  candlescope tune batch --model config:smollm2-135m --device "$device" --end 256 --slo tpot=10ms --time-limit 4 \
    --no-progress --out "$scratch/tune" | tee "$out/tune.txt"
  keep "$scratch/tune" tune
}

for part in "$@"; do
  echo "== $part"
  "$part"
done
