#!/usr/bin/env bash
# Decoding of fixed shape on a CUDA device: eager, by slots, and by slots as a CUDA graph. Six minutes on an H200.
# Usage: tests/gpu/graph.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed)
#   OUT      folder for results (default: target/bench/graph)
#   TAKES    takes of each case, in turns (default 2)
#   MODELS   names of `config:NAME` (default: smollm2-135m gpt2 llama-3-8b)
# Writes runs into OUT, and a line for each to $OUT/cases.txt: model, mode, batch, slots, take, median TPOT and TTFT in ms, the
# first tokens. Then what `--what-if graph` promised of each eager run. Fails if a case does, or if the tokens of one sequence
# are not the same in all modes.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/graph}
mkdir -p "$out"
: >"$out/cases.txt"
failed=0
candlescope-cuda doctor >"$out/doctor.txt" 2>&1 || true

words() { # MODE BATCH SLOTS: the options of a way to decode
  case $1 in
    eager) echo ;;
    slots) echo --max-num-seqs "$3" --max-model-len 1024 ;;
    graph) echo --cuda-graph --max-num-seqs "$3" --max-model-len 1024 ;;
  esac
}

case_of() { # MODEL MODE BATCH SLOTS TAKE MORE…
  local model=$1 mode=$2 batch=$3 slots=$4 take=$5
  local run=$out/$model-$mode-$batch-$slots-$take
  shift 5
  # shellcheck disable=SC2046
  if ! candlescope-cuda profile --model "config:$model" --device cuda:0 --dtype bf16 --batch "$batch" $(words "$mode" "$batch" "$slots") \
    --prompt-tokens 64 --max-new-tokens 200 --ignore-eos --warmup 2 --repeats 6 --no-progress --set stacks=off "$@" \
    --out "$run" >"$run.txt" 2>&1; then
    echo "failed: $model $mode $batch: $(tail -n 1 "$run.txt")" | tee -a "$out/cases.txt"
    failed=1
    return
  fi
  python3 - "$run/metrics.json" "$run.txt" "$model $mode batch $batch slots $slots take $take" <<'P' | tee -a "$out/cases.txt"
import json, re, sys
f = json.load(open(sys.argv[1]))["figures"]
tokens = re.search(r"tokens: (\[.*\])", open(sys.argv[2]).read())
if not tokens:
    sys.exit("failed: no tokens in " + sys.argv[2])
print(sys.argv[3], "tpot %.3f ms" % (f["tpot"]["median"] / 1e6), "ttft %.2f ms" % (f["ttft"]["median"] / 1e6), tokens and tokens[1])
P
}

for model in ${MODELS:-smollm2-135m gpt2 llama-3-8b}; do
  for take in $(seq "${TAKES:-2}"); do
    for mode in eager slots graph; do case_of "$model" "$mode" 1 1 "$take" --gpu-timing steps; done
  done
done
# One request must not pay for 64 slots, and several share a step.
case_of smollm2-135m graph 1 64 1 --gpu-timing steps
for batch in 8 64; do
  for mode in eager graph; do case_of smollm2-135m "$mode" "$batch" "$batch" 1 --gpu-timing steps; done
done
# With kernels: what the eager run promises, beside what a step takes as a graph, and what a replay consists of.
for model in ${MODELS:-smollm2-135m gpt2 llama-3-8b}; do
  case_of "$model" eager 1 1 kernels --cupti=10/50
  case_of "$model" graph 1 1 kernels --cupti=10/50
  candlescope-cuda analyze "$out/$model-eager-1-1-kernels" --what-if graph --json >"$out/$model-promised.json" 2>"$out/$model-promised.txt"
  candlescope-cuda analyze "$out/$model-graph-1-1-kernels" >"$out/$model-replayed.txt" 2>&1
  python3 - "$out" "$model" <<'P' | tee -a "$out/promised.txt" || failed=1
import glob, json, statistics, sys
out, model = sys.argv[1:]
steps = json.load(open(f"{out}/{model}-promised.json"))["runs"][0]["what_if"]["steps"]
decode = next(step for step in steps if step["name"] == "decode")
promised = next(s["outcome"]["seconds"] for s in decode["scenarios"] if s["changes"] == "graph" and s["outcome"])
runs = glob.glob(f"{out}/{model}-graph-1-1-[0-9]*/metrics.json")
took = statistics.median(json.load(open(run))["figures"]["tpot"]["median"] for run in runs) / 1e6
ms = {name: value * 1e3 for name, value in promised.items()}
print(f"{model} as a graph: promised {ms['mid']:.3f} ms ({ms['low']:.3f} to {ms['high']:.3f}), took {took:.3f}: {ms['mid'] / took - 1:+.1%}")
P
done
python3 - "$out/cases.txt" <<'P' || failed=1
import re, sys
texts = {}
for line in open(sys.argv[1]):
    if m := re.match(r"(\S+) \w+ batch 1 slots \d+ take .*?(\[.*\])", line):
        texts.setdefault(m[1], set()).add(m[2])
for model, seen in texts.items():
    print(model, "the same tokens in all modes" if len(seen) == 1 else f"DIFFERENT TOKENS: {seen}")
sys.exit(any(len(seen) > 1 for seen in texts.values()))
P
exit $failed
