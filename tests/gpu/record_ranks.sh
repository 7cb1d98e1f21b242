#!/usr/bin/env bash
# `candlescope record` on two GPUs: two ranks of PyTorch and NCCL as one run of two ranks, with one of them slow on purpose and without, of
# which the one that takes longest by itself has to be named, whoever that is (check_ranks.py); a process with a thread a GPU; many starts of
# both. Its status is 0 if all checks hold; each that does not is printed with WRONG.
# Usage: tests/gpu/record_ranks.sh
#   CANDLESCOPE_BINARY         the command (default: target/debug/candlescope)
#   CANDLESCOPE_INJECT_LIBRARY the library (default: beside it)
#   OUT                        folder for runs (default: target/bench/record-ranks)
#   STARTS                     how often both are started again, to see that none crashes as it begins (10); what those that fail say
#                              is kept in $OUT/failed. With 0 there are none. Programs in C with contexts on both devices: PARTS=starts tests/gpu/record.sh
#   LIMIT                      seconds that a program may take (180)
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export CANDLESCOPE_BINARY=${CANDLESCOPE_BINARY:-$root/target/debug/candlescope}
cs=$CANDLESCOPE_BINARY
out=${OUT:-$root/target/bench/record-ranks}
mkdir -p "$out"
rm -rf "${out:?}"/{slow,start}-* "${out:?}/threads"
# shellcheck source=tests/gpu/kept.sh
. "$here/kept.sh"
# One that hangs must not take the time of the others. torchrun gives its workers, which are in sessions of their own, 30 s to end.
GRACE=40
limited=(timeout -k $GRACE "${LIMIT:-180}")
failed=0
wrong() { echo "  WRONG $*"; failed=1; }
nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
ranks() { "${limited[@]}" python3 -W ignore -m torch.distributed.run --nproc_per_node 2 "$here/record_ranks.py" ranks "$@"; }
export OMP_NUM_THREADS=1 NCCL_NVLS_ENABLE=0
echo "-- two ranks, plain"
ranks 2>&1 | grep RESULT
[ "${PIPESTATUS[0]}" = 0 ] || wrong "the program ended with an error"
for slow in none 1; do
  echo "-- two ranks, slow: $slow"
  options=() judged=()
  [ "$slow" = none ] || options=(--slow "$slow")
  "${limited[@]}" "$cs" record --follow-forks --out "$out/slow-$slow" -- python3 -W ignore -m torch.distributed.run --nproc_per_node 2 "$here/record_ranks.py" ranks "${options[@]}" 2>&1 |
    grep -v "^\*\|OMP_NUM"
  [ "${PIPESTATUS[0]}" = 0 ] || wrong "record ended with an error"
  "$cs" analyze "$out/slow-$slow" || wrong "analyze ended with an error"
  "$cs" analyze "$out/slow-$slow" --json >"$out/slow-$slow.json" || wrong "analyze ended with an error"
  [ "$slow" = none ] || judged=(--unslowed "$out/slow-none.own.json")
  "$here/check_ranks.py" "$out/slow-$slow" --slow "$slow" --keep "$out/slow-$slow.own.json" "${judged[@]}" <"$out/slow-$slow.json" || failed=1
done
echo "-- a thread a GPU"
"${limited[@]}" "$cs" record --out "$out/threads" -- python3 -W ignore "$here/record_ranks.py" threads 2>&1 || wrong "record ended with an error"
ask() { "$cs" query "$1" "$out/threads" --format csv | tail -n +2; }
told=0
while IFS=, read -r device kernels threads without; do
  told=$((told + 1))
  echo "  $device: $kernels kernels of $threads thread, $without without an interval"
  [ "$threads" = 1 ] && [ "$without" = 0 ] && [ "$kernels" -ge 1000 ] || wrong "$device"
done < <(ask "SELECT k.device, count(*), count(DISTINCT s.thread), sum(CASE WHEN k.path IS NULL THEN 1 ELSE 0 END)
              FROM kernels k LEFT JOIN steps s ON s.step = k.step WHERE k.kind = 'kernel' GROUP BY k.device ORDER BY k.device")
[ $told = 2 ] || wrong "kernels of $told devices"
same=$(ask "SELECT count(DISTINCT kernels) FROM (SELECT device, median(k) AS kernels FROM (SELECT device, step, count(*) AS k FROM kernels
            WHERE kind = 'kernel' AND phase = 'decode' GROUP BY 1, 2) AS steps GROUP BY 1) AS devices")
[ "$same" = 1 ] || wrong "steps of the two devices have different numbers of kernels"
"$cs" analyze "$out/threads" --by-thread || wrong "analyze --by-thread ended with an error"
echo "-- ${STARTS:-10} starts of a thread a GPU, and as many of two ranks"
RECORD=()
started torch-threads "${STARTS:-10}" 120 python3 -W ignore "$here/record_ranks.py" threads --steps 5
RECORD=(--follow-forks)
started torch-ranks "${STARTS:-10}" 180 python3 -W ignore -m torch.distributed.run --nproc_per_node 2 "$here/record_ranks.py" ranks --steps 5
echo "  $FAILED_STARTS of $ALL_STARTS ended with an error"
[ "$FAILED_STARTS" = 0 ] || wrong "programs ended with an error"
if [ $failed = 0 ]; then echo "all checks hold"; else echo "some checks do not hold"; fi
exit $failed
