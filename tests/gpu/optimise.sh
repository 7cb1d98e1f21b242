#!/usr/bin/env bash
# Advice that comes true on a GPU: `candlescope optimise` on models of several sizes, each remedy promised and measured in turns.
# Ten minutes on an H200. Usage: tests/gpu/optimise.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed)
#   OUT      folder for results (default: target/bench/optimise)
#   CASES    of: smollm2 gpt2 batch bits llama sampling cache half (default: all but llama)
#   BUDGET   time of a case (default 150s)
#   PAIRS    most pairs of runs of a remedy (default 10)
# Prints each account; fails if a case cannot be run or tests no promise.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/optimise}
mkdir -p "$out"
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$out/cache}
failed=0

case_of() { # NAME ARGUMENTS…
  local name=$1
  shift
  candlescope-cuda optimise "$@" --budget "${BUDGET:-150s}" --pairs "${PAIRS:-10}" --no-progress --out "$out/$name" >"$out/$name.txt" 2>&1 ||
    failed=1
  echo "== $name: $*"
  cat "$out/$name.txt"
  python3 - "$out/$name/study.json" <<'P' || { echo "no promise of $name was put to the test"; failed=1; }
import json, sys
phases = json.load(open(sys.argv[1]))["facts"]["account"]["phases"]
sys.exit(not any(p["promised"] and p["obtained"] for p in phases))
P
}

PROFILE="candlescope-cuda profile --device cuda:0 --no-progress --cupti=4/64 --out {out}"
# One change by hand, and what it should obtain.
hand() { # NAME PROMISE OPTIONS MORE_OPTIONS
  case_of "$1" --run "$PROFILE $3" --try "$PROFILE $3 $4" --promise "$2" --quality kl=10
}

GPU="--device cuda:0"
SHORT="--prompt-tokens 64 --max-new-tokens 64 --repeats 3"
for name in ${CASES:-smollm2 gpt2 batch bits sampling cache half}; do
  case $name in
    smollm2) case_of smollm2 config:smollm2-135m $GPU $SHORT ;;
    gpt2) case_of gpt2 config:gpt2 $GPU $SHORT ;;
    batch) case_of batch config:smollm2-135m $GPU $SHORT --goal throughput ;;
    bits) case_of bits config:qwen2.5-0.5b $GPU $SHORT --quality kl=0.05 ;;
    llama) case_of llama config:llama-3-8b $GPU $SHORT --quality kl=0.05 ;;
    # Drawing among the fifty likeliest tokens: by the host, or where they are.
    sampling) hand sampling host_sampling "--model config:tinyllama-1.1b --dtype f32 --batch 8 --temperature 0.8 --top-k 50 $SHORT" "--max-num-seqs 8" ;;
    # Keys and values copied at every token, or written in place.
    cache) hand cache cache_copied "--model config:tinyllama-1.1b --batch 32 --prompt-tokens 1024 --max-new-tokens 64 --repeats 2" "--max-num-seqs 32 --max-model-len 1152" ;;
    half)
      HALF="--model config:tinyllama-1.1b --batch 8 $SHORT"
      case_of half --run "$PROFILE $HALF --dtype f32" --try "$PROFILE $HALF --dtype bf16" --promise bits=16 --quality kl=10
      ;;
    *) echo "no case $name"; failed=1 ;;
  esac
done
cat "$XDG_CACHE_HOME/candlescope/advice.jsonl" 2>/dev/null
exit $failed
