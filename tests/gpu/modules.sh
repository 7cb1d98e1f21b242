#!/bin/sh
# candle's own Llama, unmodified, on a CUDA device: its modules by name, with their kernels, FLOPs and bytes.
#
# Usage: modules.sh CANDLESCOPE OUT    CANDLESCOPE is a build with CUDA, or one that has candlescope-cuda beside it.
#
# Fails where a kernel is in no module's or phase's row, or a figure is not what the tables say.
set -eu
candlescope=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
"$candlescope" profile --device cuda:0 --engine candle --model config:smollm2-135m --dtype bf16 --prompt-tokens 64 \
    --max-new-tokens 100 --repeats 4 --warmup 1 --cupti=5/50 --out "$out"
"$candlescope" report "$out" >"$out/terminal.txt"
sed -n '/^Where the time goes/,/^$/p; /^Kernels by path/,/^$/p' "$out/terminal.txt"
python3 - "$out" <<'PY'
import json, sys
model = json.load(open(sys.argv[1] + "/run.json"))["modules"]
# 30 layers: seven projections, two norms, block, attention, feed-forward; the last norm and the head.
assert model["modules"] == 30 * 12 + 2, model
assert model["unnamed"] == {} and model["rows_unknown"] == 0, model
print("modules", model["modules"], "of", model["weights"], "weights;", "without a span:", ", ".join(model["unowned"]))
PY
if python3 -c 'import pyarrow' 2>/dev/null; then
    python3 "$here/truth.py" "$out"
fi
