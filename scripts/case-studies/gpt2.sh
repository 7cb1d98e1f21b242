#!/usr/bin/env bash
# The case study of GPT-2 at its size (random weights): without a KV cache, with it, in 8 bits, as ONNX. Makes
# docs/case-studies/gpt2.md. A quarter of an hour on two cores. Usage: scripts/case-studies/gpt2.sh; variables: README.md beside this
# file, TIME_LIMIT of a variant in seconds (60), ORT_DYLIB_PATH (ONNX Runtime's library; without it `onnx` is absent).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/case-studies/gpt2}
page=${PAGE:-$root/docs/case-studies}/gpt2.md
mkdir -p "$out" "$(dirname "$page")"
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$out/kept}
# What the machine reaches at best, which promises rest on.
ls "$XDG_CACHE_HOME"/candlescope/peaks/*.json >/dev/null 2>&1 || candlescope bench peaks --no-progress >"$out/peaks.txt"

rm -rf "$out/variants" "$out/optimised"
candlescope bench variants --model config:gpt2 --variants no_cache,kv_cache,q8_0,onnx --prompt-tokens 32 --output-tokens 32 --processes 6 \
  --time-limit "${TIME_LIMIT:-60}" --no-progress --out "$out/variants" >"$out/variants.txt" 2>&1 || { cat "$out/variants.txt"; exit 1; }
candlescope optimise config:gpt2 --prompt-tokens 32 --max-new-tokens 32 --repeats 3 --quality kl=0.05 --budget "${BUDGET:-420s}" \
  --pairs 16 --no-progress --out "$out/optimised" >"$out/optimised.txt" 2>&1 || { cat "$out/optimised.txt"; exit 1; }
python3 "$here/variants.py" "$page" "$out/variants" "GPT-2 in 8 bits, promised and obtained=$out/optimised" >"$page.new"
mv "$page.new" "$page"
echo "$page"
