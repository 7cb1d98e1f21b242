#!/usr/bin/env bash
# Device memory over a thousand windows of kernels, eagerly and as a CUDA graph, whose windows record node by node. Two minutes on an H200.
# Usage: tests/gpu/windows_soak.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed)
#   OUT      folder for results (default: target/bench/windows_soak)
#   MODEL    name of `config:NAME` (default: smollm2-135m); WINDOWS (1000), each of 1 step in 10, as far as the distance in time that windows
#            keep allows (of eager steps some one in fifteen, where CUPTI is detached in between); WAYS ("eager graph"); DEVICE (cuda:0)
#   LEAST    windows without which nothing is said (50)
#   MOST     MiB that the memory may grow by from the 100th window to the last (default 64)
# Prints the device's memory in use, by anyone: before the program starts, and once it has had 100, 300 and 1,000 windows, as well as it
# is known from outside: windows follow each other evenly. Then what became of the kernels. Fails if a run does, if fewer windows were
# recorded than LEAST, or if the memory grew by more than MOST.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/windows_soak}
windows=${WINDOWS:-1000} model=${MODEL:-smollm2-135m} device=${DEVICE:-cuda:0} most=${MOST:-64} least=${LEAST:-50}
mkdir -p "$out"
export RAYON_NUM_THREADS=${RAYON_NUM_THREADS:-1}
failed=0
tokens=400
# Windows of recorded steps: those of requests that warm up, too.
repeats=$(((windows * 10 + tokens - 1) / tokens))

memory() { "$root/tests/gpu/device_counter.py" memory "${device#cuda:}"; }

for way in ${WAYS:-eager graph}; do
  options=(--gpu-timing steps)
  [ "$way" != graph ] || options=(--gpu-timing steps --cuda-graph --max-model-len 512)
  before=$(memory) || { echo "windows_soak.sh: NVML does not tell the memory of $device" >&2; exit 1; }
  rm -rf "${out:?}/$way"
  : >"$out/$way.memory"
  candlescope-cuda profile --model "config:$model" --device "$device" --dtype bf16 --prompt-tokens 64 --max-new-tokens "$tokens" \
    --ignore-eos --warmup 1 --repeats "$repeats" --no-progress --set stacks=off --cupti=1/10 "${options[@]}" --out "$out/$way" \
    >"$out/$way.txt" 2>&1 &
  pid=$!
  while kill -0 $pid 2>/dev/null; do
    echo "$(date +%s.%N) $(memory)" >>"$out/$way.memory"
    sleep 0.2
  done
  if ! wait $pid; then
    echo "failed: $way: $(tail -n 2 "$out/$way.txt")"
    failed=1
    continue
  fi
  # When windows came, by the steps that have kernels.
  candlescope-cuda query --json "SELECT s.host_start_ns AS at FROM steps s JOIN (SELECT DISTINCT step FROM kernels) k ON k.step = s.step \
    ORDER BY 1" "$out/$way" >"$out/$way.windows.json" 2>>"$out/$way.txt" || failed=1
  python3 - "$out" "$way" "$before" "$windows" "$most" "$least" <<'P' || failed=1
import json, sys
out, way, before, asked, most = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
least = int(sys.argv[6])
kernels = json.load(open(f"{out}/{way}/run.json"))["gpu"]["kernels"]
at = [row["at"] / 1e9 for row in json.load(open(f"{out}/{way}.windows.json"))["rows"]]
memory = [tuple(map(float, line.split())) for line in open(f"{out}/{way}.memory") if len(line.split()) == 2]


def when(nth):
    """The memory at the first reading after so many windows; None if there was none any more."""
    if nth > len(at):
        return None
    return next((used for time, used in memory if time >= at[nth - 1]), None)


def last():
    """The last reading while windows came: at the end of the program all of it is given back."""
    return next((used for time, used in reversed(memory) if at and time <= at[-1]), None)


print(f"{way}: MiB of the device in use: {before:.0f} before", end="")
for nth in (100, 300, 1000):
    used = when(nth) if nth < len(at) else last() if nth == asked else None
    print(", -" if used is None else f", {used:.1f} after {nth} windows", end="")
# On a run with fewer windows, from a tenth of them on.
begin = min(100, max(1, len(at) // 10))
first, end = when(begin), last()
grown = None if first is None or end is None else end - first
print("" if grown is None else f"; {grown:+.1f} from window {begin} on, {grown / max(1, len(at) - begin):+.4f} a window")
print(f"{way}: {kernels['windows']} windows, {kernels['recorded']} records, {kernels['dropped']} lost, {kernels['of_graphs']} of graphs, "
      f"{kernels['of_captured']} in their layers")
sys.exit(grown is None or grown > most or kernels["windows"] < least or way == "graph" and not kernels["of_captured"])
P
done
exit $failed
