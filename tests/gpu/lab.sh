#!/usr/bin/env bash
# Peaks and kernels of a CUDA device through candle, and the same shapes with PyTorch in the same session: 6 minutes.
# Usage: tests/gpu/lab.sh [peaks] [kernels] [torch]      (all by default)
#   BIN    folder with `candlescope`, and `candlescope-cuda` beside it (default: the ones on the PATH)
#   OUT    folder for results (default: target/bench)
#   DEVICE cuda:0 unless told otherwise
# Writes $OUT/peaks.{csv,json}, $OUT/kernels.{csv,json} and $OUT/torch.{csv,json}, and prints the ratios. Goals: the
# same cuBLAS kernel within 3 %, matrix products at 95 % of PyTorch's at least; on an H200, reading at 4.1 TB/s.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench}
device=${DEVICE:-cuda:0}
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# What is kept of this device in the user's cache is left as it is.
export XDG_CACHE_HOME=${LAB_CACHE:-$scratch/cache}
[ $# -gt 0 ] || set -- peaks kernels torch

peaks() {
  candlescope bench peaks --device "$device" --no-progress --out "$scratch/peaks"
  cp "$scratch"/peaks/peaks.{csv,json} "$out/"
}
sweep() { # OPS SIZES: a study of its own, because sizes hold for all operations of a command
  local name=${1//,/-}-$RANDOM
  candlescope bench kernels --device "$device" --no-progress --dtype "${DTYPE:-bf16}" --ops "$1" --sizes "$2" \
    --time-limit "${SECONDS_EACH:-5}" --out "$scratch/studies/$name"
}
kernels() {
  mkdir -p "$scratch/studies"
  sweep gemm 'm=1,256,4096;n=4096;k=4096'
  sweep gemm 'm=8192;n=8192;k=8192'
  sweep linear 'm=1,256;n=14336;k=4096'
  sweep softmax,rmsnorm,layernorm_gelu 'rows=4096;width=4096'
  sweep attention_prefill 'context=512'
  sweep attention_decode 'batch=1;context=2048'
  sweep rotary,embedding 'tokens=2048'
  DTYPE=q4_k,q8_0 sweep qmatmul 'm=1,256'
  python3 - "$out" "$scratch"/studies/* <<'PY'
import csv, json, os, sys
out, studies = sys.argv[1], sys.argv[2:]
rows = []
for study in studies:
    with open(os.path.join(study, "kernels.json")) as file:
        rows += json.load(file)["rows"]
with open(os.path.join(out, "kernels.json"), "w") as file:
    json.dump({"rows": rows}, file, indent=1)
with open(os.path.join(out, "kernels.csv"), "w", newline="") as file:
    table = csv.DictWriter(file, list(rows[0]))
    table.writeheader()
    table.writerows(rows)
failed = [row for row in rows if row["median_ns"] is None]
for row in failed:
    print("no figure:", row["op"], row["dtype"], row["shape"], row["detail"])
sys.exit(bool(failed))
PY
}
torch() {
  python3 "$root/tests/gpu/lab_torch.py" "$out" --device "$device"
}

for part in "$@"; do
  echo "== $part"
  "$part"
done
