#!/usr/bin/env bash
# A Llama of the shape of 8B split over two GPUs (candle and NCCL, a process each): ranks of one run. Whether both compute what one
# GPU does, what recording costs, whether a rank that is slow on purpose is found, what the link carries, and kernels beside
# Nsight Systems. Three minutes on two H100s.
# Usage: tests/gpu/ranks.sh
#   TP       the program (cargo build -p candlescope-bench --features nccl --bin tensor_parallel; NCCL's library where the linker looks)
#   OUT      folder for runs (default: target/bench/ranks)
#   ROUNDS   rounds of plain and recorded in turns (default 3)
#   NSYS     Nsight Systems, if it is to be compared with
# `candlescope analyze OUT/even`, `OUT/slow` say the rest.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
tp=${TP:-$root/target/debug/tensor_parallel}
out=${OUT:-$root/target/bench/ranks}
mkdir -p "$out"
failed=0

both() { # OPTIONS…: a process a rank; with {} for the rank in them
  local meet pids=() rank
  meet=$(mktemp -u)
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 ${PREFIX//\{\}/$rank} "$tp" --meet "$meet" "${@//\{\}/$rank}" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  rm -f "$meet"
}
PREFIX=

nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
nvidia-smi topo -m | head -4
echo "-- one GPU"
"$tp" --meet /nowhere --exchange 0 || failed=1
for round in $(seq "${ROUNDS:-3}"); do
  echo "-- two GPUs, plain, round $round"
  both
  echo "-- two GPUs, recorded without kernels, round $round"
  both --out "$out/host-$round/rank-{}" --kernels 0
done
echo "-- two GPUs, recorded with a window of kernels"
both --out "$out/even/rank-{}" --tokens 60 --kernels 1000
echo "-- rank 1 computes every MLP twice"
both --out "$out/slow/rank-{}" --slow-rank 1 --slow-every 1
if [ -n "${NSYS:-}" ]; then
  echo "-- Nsight Systems"
  PREFIX="$NSYS profile --trace=cuda --sample=none --cpuctxsw=none --force-overwrite=true --export=sqlite -o $out/nsys-{}"
  both --exchange 0
  PREFIX=
fi
exit $failed
