#!/usr/bin/env bash
# Records small runs on a CUDA device, from which `cli/tests/recorded` takes what is said of GPUs: two minutes.
# Usage: tests/gpu/recorded.sh
#   BIN    folder with `candlescope-cuda` (default: the one on the PATH)
#   OUT    folder for results (default: target/bench)
#   DEVICE cuda:0 unless told otherwise
#   GGUF   a quantised model, for a run that dequantises (default: none)
# Writes $OUT/recorded/NAME (run directories). Those that are kept lie in cli/tests/recorded/gpu.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench}/recorded
device=${DEVICE:-cuda:0}
mkdir -p "$out"
run() { # NAME OPTIONS…
  local name=$1
  shift
  candlescope-cuda profile --device "$device" --no-progress --warmup 1 --seed 1 "$@" --out "$out/$name" ||
    echo "$name: $?"
}
run decode --model config:smollm2-135m --dtype bf16 --prompt-tokens 32 --max-new-tokens 12 --repeats 4 --ignore-eos --cupti=2/8
run unmodified --engine candle --model config:qwen2.5-0.5b --dtype f32 --prompt-tokens 24 --max-new-tokens 8 --repeats 3 \
  --ignore-eos --cupti=1/6
run host --model embedded --dtype bf16 --prompt-tokens 16 --max-new-tokens 200 --repeats 2 --ignore-eos --cupti=8/80 --stacks
run replays --model config:smollm2-135m --dtype bf16 --cuda-graph --max-model-len 2048 --prompt-tokens 64 --max-new-tokens 1200 \
  --warmup 0 --repeats 1 --ignore-eos --cupti=5/200 --set stacks=off
run large --model config:llama-3-8b --dtype bf16 --prompt-tokens 48 --max-new-tokens 8 --repeats 3 --ignore-eos --cupti=1/6
[ -z "${GGUF:-}" ] || run quantised --model "$GGUF" --prompt-tokens 24 --max-new-tokens 8 --repeats 3 --ignore-eos --cupti=1/6
run batch --model config:smollm2-135m --dtype f32 --batch 8 --prompt-tokens 24 --max-new-tokens 10 --repeats 3 --ignore-eos \
  --cupti=1/6
for dir in "$out"/*/; do du -sk "$dir"; done
