#!/usr/bin/env bash
# The case study on a GPU: SmolLM2's shape, Qwen2.5-0.5B's and Llama 3 8B's, for latency and for throughput: graph, batch, sampling on the
# device, weights, keys and values in 8 bits. Makes docs/case-studies/gpu.md. Three quarters of an hour on an H200, ten minutes of it
# without the 8B shape. Usage: scripts/case-studies/gpu.sh; variables: README.md beside this file, CASES (default: all), PAIRS (10),
# BUDGET of a small case (150s), BUDGET_8B of an optimisation of the 8B shape (600s), BUDGET_8B_HAND of one change of it by hand (300s).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/case-studies/gpu}
page=${PAGE:-$root/docs/case-studies}/gpu.md
mkdir -p "$out" "$(dirname "$page")"
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$out/kept}

small=${BUDGET:-150s} large=${BUDGET_8B:-600s} by_hand=${BUDGET_8B_HAND:-300s}
studies=()
study() { # NAME HEADING BUDGET ARGUMENTS…
  local name=$1 heading=$2 budget=$3
  shift 3
  rm -rf "${out:?}/$name"
  candlescope-cuda optimise "$@" --budget "$budget" --pairs "${PAIRS:-10}" --no-progress --out "$out/$name"
  studies+=("$heading=$out/$name")
}
SHORT="--prompt-tokens 64 --max-new-tokens 64 --repeats 3"
model() { # NAME HEADING BUDGET MODEL ARGUMENTS…
  # shellcheck disable=SC2086
  study "$@" --device cuda:0 $SHORT
}
PROFILE="candlescope-cuda profile --device cuda:0 --no-progress --cupti=4/64 --out {out}"
hand() { # NAME HEADING OPTIONS MORE_OPTIONS [PROMISE]
  study "$1" "$2" "$by_hand" --run "$PROFILE $3" --try "$PROFILE $3 $4" --quality kl=10 ${5:+--promise "$5"}
}

LLAMA="--model config:llama-3-8b"
for name in ${CASES:-latency throughput quality llama llama-throughput llama-sampling llama-bits llama-cache}; do
  case $name in
    latency) model latency "SmolLM2, one request at a time" "$small" config:smollm2-135m ;;
    throughput) model throughput "SmolLM2, as many tokens as possible" "$small" config:smollm2-135m --goal throughput ;;
    quality) model quality "Qwen2.5 0.5B, where answers may change a little" "$small" config:qwen2.5-0.5b --quality kl=0.05 ;;
    llama) model llama "Llama 3 8B's shape, one request at a time" "$large" config:llama-3-8b --dtype bf16 --quality kl=0.05 ;;
    llama-throughput)
      # More sequences, and keys and values in 8 bits, which the goal latency does not try.
      model llama-throughput "Llama 3 8B's shape, as many tokens as possible" "$large" config:llama-3-8b --dtype bf16 --goal throughput --quality kl=0.05
      ;;
    llama-sampling)
      # Drawing among the fifty likeliest of 128,256 tokens: by the host, or where they are.
      hand llama-sampling "Llama 3 8B's shape, tokens drawn by the host, against on the device" "$LLAMA --batch 8 --temperature 0.8 --top-k 50 $SHORT" \
        "--max-num-seqs 8" host_sampling
      ;;
    # By hand, because a graph, which is kept first, leaves no room for quantised weights.
    llama-bits) hand llama-bits "Llama 3 8B's shape, weights of 16 bits against 8" "$LLAMA $SHORT" "--quantize q8_0" bits=8 ;;
    # Nothing is promised: 8 bits save memory, and a step widens what it reads.
    llama-cache)
      hand llama-cache "Llama 3 8B's shape, keys and values in 16 bits against 8" "$LLAMA --batch 32 --prompt-tokens 1024 --max-new-tokens 64 --repeats 2" \
        "--kv-cache-dtype q8"
      ;;
    *) echo "no case $name" >&2; exit 2 ;;
  esac
done
python3 "$here/page.py" "$page" "SmolLM2, Qwen2.5 and Llama 3 8B on a GPU" \
  "Made by \`scripts/case-studies/gpu.sh\`: seeded random weights in bf16, prompts of 64 tokens and 64 new ones unless the heading's command says otherwise. Every case is a process start for each run, in turns; what is promised is said before it is tried. Of commands by hand, each is held against the one that its heading names first." \
  "${studies[@]}" >"$page.new"
# A part of the cases does not replace the whole page.
if [ -n "${CASES:-}" ]; then
  echo "not all cases were made: see $page.new" >&2
  exit 0
fi
mv "$page.new" "$page"
echo "$page"
