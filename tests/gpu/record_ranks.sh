#!/usr/bin/env bash
# `candlescope record` on two GPUs: two ranks of PyTorch and NCCL as one run of two ranks, one of them slow on purpose; a process with a thread
# a GPU. A minute of two GPUs.
# Usage: tests/gpu/record_ranks.sh
#   CANDLESCOPE_BINARY         the command (default: target/debug/candlescope)
#   CANDLESCOPE_INJECT_LIBRARY the library (default: beside it)
#   OUT                        folder for runs (default: target/bench/record-ranks)
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cs=${CANDLESCOPE_BINARY:-$root/target/debug/candlescope}
out=${OUT:-$root/target/bench/record-ranks}
mkdir -p "$out"
nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
ranks() { python3 -W ignore -m torch.distributed.run --nproc_per_node 2 "$here/record_ranks.py" ranks "$@"; }
export OMP_NUM_THREADS=1 NCCL_NVLS_ENABLE=0
echo "-- two ranks, plain"
ranks 2>&1 | grep RESULT
for slow in none 1; do
  echo "-- two ranks, slow: $slow"
  options=()
  [ "$slow" = none ] || options=(--slow "$slow")
  "$cs" record --follow-forks --out "$out/slow-$slow" -- python3 -W ignore -m torch.distributed.run --nproc_per_node 2 "$here/record_ranks.py" ranks "${options[@]}" 2>&1 |
    grep -v "^\*\|OMP_NUM"
  "$cs" analyze "$out/slow-$slow"
done
echo "-- a thread a GPU"
"$cs" record --out "$out/threads" -- python3 -W ignore "$here/record_ranks.py" threads 2>&1
"$cs" query "SELECT device, count(*) AS kernels, count(DISTINCT step) AS steps, sum(CASE WHEN path IS NULL THEN 1 ELSE 0 END) AS without_interval FROM kernels WHERE kind = 'kernel' GROUP BY device ORDER BY device" "$out/threads"
"$cs" query "SELECT device, phase, median(k) AS kernels FROM (SELECT device, phase, step, count(*) AS k FROM kernels WHERE kind = 'kernel' GROUP BY 1, 2, 3) GROUP BY 1, 2 ORDER BY 1, 2" "$out/threads"
