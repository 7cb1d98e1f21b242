#!/usr/bin/env bash
# Decoding of fixed shape on a CUDA device: eager, by slots, and by slots as a CUDA graph. Eight minutes on an H200.
# Usage: tests/gpu/graph.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed)
#   OUT      folder for results (default: target/bench/graph)
#   TAKES    takes of each case, in turns (default 2)
#   MODELS   names of `config:NAME` (default: smollm2-135m gpt2 llama-3-8b)
#   MODELS_TESTS  the tests of candlescope-models as a program (`cargo test -p candlescope-models --features cuda --lib --no-run` names
#            it): those that need a CUDA device run first, captures that fail in the middle among them
# Writes runs into OUT, and a line for each to $OUT/cases.txt: model, mode, batch, slots, take, element type, median TPOT and TTFT in
# ms, and the digest of all tokens (`output_sha256`). Then what `--what-if graph` promised of each eager run. Fails if a case does, or
# if tokens in f32 are not the same in all modes. In bf16 a graph may write other tokens than calls do, and several sequences others than
# one, because they add up in another order (a graph attends to its whole context) and 8 digits round: that is printed. How near two
# logits have to be for it is held by a test of MODELS_TESTS, `near_ties`.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/graph}
mkdir -p "$out"
: >"$out/cases.txt"
failed=0
if [ -n "${MODELS_TESTS:-}" ]; then
  "$MODELS_TESTS" --ignored --test-threads 1 >"$out/models_tests.txt" 2>&1 || failed=1
  grep -E "^test |^test result" "$out/models_tests.txt" || { tail -n 3 "$out/models_tests.txt"; failed=1; }
fi
candlescope-cuda doctor >"$out/doctor.txt" 2>&1 || true

words() { # MODE BATCH SLOTS: the options of a way to decode
  case $1 in
    eager) echo ;;
    slots) echo --max-num-seqs "$3" --max-model-len 1024 ;;
    graph) echo --cuda-graph --max-num-seqs "$3" --max-model-len 1024 ;;
  esac
}

case_of() { # MODEL MODE BATCH SLOTS TAKE MORE…; DTYPE (bf16), WARMUP and REPEATS (2 and 6)
  local model=$1 mode=$2 batch=$3 slots=$4 take=$5 dtype=${DTYPE:-bf16}
  local run=$out/$model-$mode-$batch-$slots-$take
  shift 5
  # shellcheck disable=SC2046
  if ! candlescope-cuda profile --model "config:$model" --device cuda:0 --dtype "$dtype" --batch "$batch" $(words "$mode" "$batch" "$slots") \
    --prompt-tokens 64 --max-new-tokens 200 --ignore-eos --warmup "${WARMUP:-2}" --repeats "${REPEATS:-6}" --no-progress --set stacks=off "$@" \
    --out "$run" >"$run.txt" 2>&1; then
    echo "failed: $model $mode $batch: $(tail -n 1 "$run.txt")" | tee -a "$out/cases.txt"
    failed=1
    return
  fi
  python3 - "$run" "$model $mode batch $batch slots $slots take $take $dtype" <<'P' | tee -a "$out/cases.txt"
import json, sys
f = json.load(open(sys.argv[1] + "/metrics.json"))["figures"]
results = json.load(open(sys.argv[1] + "/run.json"))["results"]
print(sys.argv[2], "tpot %.3f ms" % (f["tpot"]["median"] / 1e6), "ttft %.2f ms" % (f["ttft"]["median"] / 1e6), results["output_sha256"])
P
  [ "${PIPESTATUS[0]}" = 0 ] || failed=1
}

for model in ${MODELS:-smollm2-135m gpt2 llama-3-8b}; do
  for take in $(seq "${TAKES:-2}"); do
    for mode in eager slots graph; do case_of "$model" "$mode" 1 1 "$take" --gpu-timing steps; done
  done
done
# Where nothing is rounded to 8 digits, a graph writes what calls do.
for mode in eager slots graph; do
  DTYPE=f32 WARMUP=1 REPEATS=2 case_of smollm2-135m "$mode" 1 1 f32 --gpu-timing steps
done
# One request must not pay for 64 slots, and several share a step.
case_of smollm2-135m graph 1 64 1 --gpu-timing steps
for batch in 8 64; do
  for mode in eager slots graph; do
    case_of smollm2-135m "$mode" "$batch" "$batch" 1 --gpu-timing steps
    # Where nothing is rounded to 8 digits, several write in any mode what they write in the others.
    DTYPE=f32 WARMUP=1 REPEATS=2 case_of smollm2-135m "$mode" "$batch" "$batch" f32 --gpu-timing steps
  done
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
import collections, re, sys
# The modes that wrote each text, by what was asked for.
texts = collections.defaultdict(lambda: collections.defaultdict(set))
for line in open(sys.argv[1]):
    if m := re.match(r"(\S+) (\w+) batch (\d+) slots \d+ take \S+ (\w+) .* ([0-9a-f]{64})$", line):
        model, mode, batch, dtype, digest = m.groups()
        texts[model, batch, dtype][digest].add(mode)
differ = not texts
for (model, batch, dtype), seen in texts.items():
    modes = ", ".join(sorted(set().union(*seen.values())))
    # A graph adds up in another order than calls, and so do several sequences; in bf16 another order is another rounding.
    by_calls = [digest for digest, modes_of in seen.items() if modes_of - {"graph"}]
    may = dtype == "bf16" and (batch != "1" or len(by_calls) <= 1)
    differ |= len(seen) > 1 and not may
    said = "the same tokens" if len(seen) == 1 else "other tokens, which rounding may do" if may else "DIFFERENT TOKENS"
    print(f"{model}, {batch} at once in {dtype}: {said} in {modes}")
sys.exit(differ)
P
exit $failed
