#!/usr/bin/env bash
# What-if on a CUDA device: a decode of SmolLM2's shape, recorded eagerly, and what it would take as a graph. 2 minutes.
#
# Usage: tests/gpu/whatif.sh [RUN]      a run to use instead of recording one
#   BIN       folder with `candlescope`, and `candlescope-cuda` beside it (default: the ones on the PATH)
#   OUT       folder for whatif.json (default: target/bench)
#   DEVICE    cuda:0 unless told otherwise
#   PEAKS     what `candlescope bench peaks` wrote, for the gap between kernels of a graph and the bandwidth
#   GRAPH_MS  milliseconds of the same step as a CUDA graph, if it was measured: it has to lie within the bounds, 5 %
#             beside them at most, and within 15 % of the middle
#   BATCH     sequences of a second run (default 4; 0 leaves it out): `batch=BATCH` has to bound what that run takes
#
# Fails if a replay is more than 3 % off, if the unobserved step is more than 10 % off the steps that were left plain,
# or if a graph is predicted to take less than its kernels or more than 1.4 times that.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench}
device=${DEVICE:-cuda:0}
batch=${BATCH:-4}
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

record() { # OUT MORE…: windows of 20 steps in every 100, marks on steps only, one step in 8 plain
  local run=$1
  shift
  candlescope profile --device "$device" --model config:smollm2-135m --dtype bf16 --prompt-tokens 64 \
    --max-new-tokens 300 --repeats 3 --warmup 1 --ignore-eos --no-progress --gpu-timing steps --cupti=20/100 \
    --overhead-probe 8 --out "$run" "$@" >/dev/null
}
run=${1:-$scratch/run}
[ $# -gt 0 ] || record "$run"
peaks=()
[ -z "${PEAKS:-}" ] || peaks=(--peaks "$PEAKS")
asked=(--what-if graph --what-if 'host×0.5' --what-if 'kernel=.×0.5' --what-if 'graph+kernel=.×0.5' --what-if bits=8
  --what-if "batch=${batch/#0/1}" --what-if fuse=self_attn --what-if fuse=act_fn)
candlescope analyze "$run" "${asked[@]}" "${peaks[@]}" --json >"$out/whatif.json"
candlescope analyze "$run" "${asked[@]}" "${peaks[@]}" | sed -n '/a typical step/,$p'
if [ "$batch" -gt 0 ]; then
  record "$scratch/batched" --batch "$batch"
  candlescope analyze "$scratch/batched" --unobserved --json >"$out/whatif_batched.json"
else
  rm -f "$out/whatif_batched.json"
fi
BATCH=$batch python3 - "$out/whatif.json" "$out/whatif_batched.json" <<'PY'
import json, os, sys
what_if = json.load(open(sys.argv[1]))["runs"][0]["what_if"]
decode = next(steps for steps in what_if["steps"] if steps["name"] == "decode")
typical, wrong = decode["typical"], []
def check(good, text):
    print("ok   " if good else "WRONG", text)
    wrong.extend([] if good else [text])
error, measured, beside = typical["largest_error"], typical["measured_seconds"], typical["check"]
unobserved = typical["unobserved"]["seconds"]["mid"]
check(error <= 0.03, f"replay: within {error:.2%} of {measured * 1e3:.3f} ms")
check(beside is not None and abs(beside) <= 0.10,
      f"unobserved: {unobserved * 1e3:.3f} ms, {beside} beside plain steps, {typical['outside']}")
graph = next(s for s in decode["scenarios"] if s["changes"] == "graph")["outcome"]
kernels = typical["kernel_seconds"]
ratio = graph["seconds"]["mid"] / kernels
ms = {key: round(value * 1e3, 3) for key, value in graph["seconds"].items()}
check(1.0 <= ratio <= 1.4, f"graph: {ms} ms, kernels {kernels * 1e3:.3f} ms, ratio {ratio:.3f}")
if os.environ.get("GRAPH_MS"):
    real = float(os.environ["GRAPH_MS"]) / 1e3
    within = graph["seconds"]["low"] * 0.95 <= real <= graph["seconds"]["high"] * 1.05
    check(within and abs(graph["seconds"]["mid"] / real - 1) <= 0.15, f"graph: measured {real * 1e3:.3f} ms")
if os.path.exists(sys.argv[2]):
    batched = json.load(open(sys.argv[2]))["runs"][0]["what_if"]["steps"]
    real = next(steps for steps in batched if steps["name"] == "decode")["typical"]["unobserved"]["seconds"]["mid"]
    told = next(s for s in decode["scenarios"] if s["changes"] == "batch=" + os.environ["BATCH"])
    if told["outcome"]:
        bounds = told["outcome"]["seconds"]
        within = bounds["low"] * 0.9 <= real <= bounds["high"] * 1.1
        simulated = [round(seconds * 1e3, 3) for seconds in bounds.values()]
        check(within, f"batch: measured {real * 1e3:.3f} ms, simulated {simulated}")
    else:
        print("none ", told["abstains"]["message"])
sys.exit(bool(wrong))
PY
