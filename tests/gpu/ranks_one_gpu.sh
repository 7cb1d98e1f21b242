#!/usr/bin/env bash
# Two ranks that share one GPU and sum through the host, as processes and as threads of one: what can be seen of ranks where there is no
# second GPU. Whether the rank that takes longest by itself is named and no other, in starts in which one is slow on purpose and in such in
# which none is (check_ranks.py), and whether kernels of both are in the runs by layers. The ranks take turns on the device, so this says
# nothing of NCCL, of links, or of what two devices do at once: tests/gpu/ranks.sh does.
# Usage: tests/gpu/ranks_one_gpu.sh
#   TP       the program (cargo build -p candlescope-bench --features gpu --bin tensor_parallel; for DEVICE=cpu without features)
#   CANDLESCOPE_BINARY  the command (default: target/debug/candlescope)
#   OUT      folder for runs; what an earlier start left there is removed (default: target/bench/ranks-one-gpu)
#   DEVICE   cuda:0 unless told otherwise; cpu does without a GPU
#   SHAPE    8b, small (default: 8b, on cpu small); LAYERS (default: 16, on cpu 4)
#   STARTS   starts with each of no slow rank, rank 0 and rank 1 (2); SHARE by which a step is longer then (0.5)
# Its status is 0 if all checks hold; each that does not is printed with WRONG.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tp=${TP:-$root/target/debug/tensor_parallel}
export CANDLESCOPE_BINARY=${CANDLESCOPE_BINARY:-$root/target/debug/candlescope}
cs=$CANDLESCOPE_BINARY
out=${OUT:-$root/target/bench/ranks-one-gpu}
device=${DEVICE:-cuda:0}
share=${SHARE:-0.5}
source=device_time shape=${SHAPE:-8b} layers=${LAYERS:-16}
[ "$device" != cpu ] || source=host shape=${SHAPE:-small} layers=${LAYERS:-4}
[ "$device" != cpu ] || export RAYON_NUM_THREADS=1
failed=0
wrong() { echo "  WRONG $*"; failed=1; }
for file in "$tp" "$cs"; do [ -x "$file" ] || { echo "ranks_one_gpu.sh: there is no $file"; exit 2; }; done
[ "$device" = cpu ] || nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
mkdir -p "$out"
rm -rf "${out:?}"/{kernels,threads}-*

both() { # NAME OPTIONS…
  local name=$1 meet pids=() rank
  shift
  meet=$(mktemp -u)
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 "$tp" --meet "$meet" --device "$device" --host-collectives --shape "$shape" --layers "$layers" --exchange 0 \
      --tokens 60 --out "$out/$name/rank-$rank" "$@" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || wrong "a rank ended with an error"; done
  rm -f "$meet".*
}
threads() { # NAME OPTIONS…: one process
  local name=$1 meet
  shift
  meet=$(mktemp -u)
  "$tp" --threads 2 --meet "$meet" --device "$device" --host-collectives --shape "$shape" --layers "$layers" --exchange 0 --tokens 60 \
    --out "$out/$name" "$@" || wrong "it ended with an error"
  rm -f "$meet".*
}
# NAME UNSLOWED SLOW: what analyze said of a start (NAME.json) beside what its ranks took by themselves, which is kept in NAME.own.json;
# UNSLOWED is how the names of those begin in which no rank is slow.
judge() {
  local run=$out/$1 slow=$3 options=() unslowed=("$out/$2"*.own.json)
  [ $slow != none ] && [ -e "${unslowed[0]}" ] && options=(--unslowed "${unslowed[@]}")
  "$here/check_ranks.py" "$run" --slow "$slow" --share "$share" --source $source --keep "$run.own.json" "${options[@]}" <"$run.json" || failed=1
}
ask() { "$cs" query "$1" "$2" --format csv | tail -n +2; }
holds() { if awk "BEGIN { exit !($2) }"; then echo "  ok    $1"; else wrong "$1"; fi; } # WHAT CONDITION

for kernels in 0 1000; do
  # A processor has none.
  [ "$device" != cpu ] || [ $kernels = 0 ] || continue
  for slow in none 0 1; do
    for start in $(seq "${STARTS:-2}"); do
      echo "-- kernels: $kernels, slow: $slow, start $start"
      options=(--kernels $kernels)
      [ $slow = none ] || options+=(--slow-rank "$slow" --slow-share "$share")
      name=kernels-$kernels-slow-$slow-$start
      both "$name" "${options[@]}"
      "$cs" analyze "$out/$name" --json >"$out/$name.json" || wrong "analyze ended with an error"
      judge $name kernels-$kernels-slow-none- $slow
    done
  done
done
for kernels in 0 1000; do
  [ "$device" != cpu ] || [ $kernels = 0 ] || continue
  for slow in none 0 1; do
    echo "-- threads, kernels: $kernels, slow: $slow"
    options=(--kernels $kernels)
    [ $slow = none ] || options+=(--slow-rank "$slow" --slow-share "$share")
    name=threads-$kernels-slow-$slow
    threads "$name" "${options[@]}"
    "$cs" analyze "$out/$name" --by-thread --json >"$out/$name.json" || wrong "analyze ended with an error"
    judge $name threads-$kernels-slow-none $slow
  done
done
if [ "$device" != cpu ]; then
  with=$out/threads-1000-slow-none
  told=0
  while IFS=, read -r thread kernels named layers; do
    told=$((told + 1))
    holds "$thread: $kernels kernels of decode; with a path $named of their time, in a layer $layers" "$named >= 0.99 && $layers >= 0.8"
  done < <(ask "SELECT s.thread, count(*), CAST(sum(CASE WHEN k.path IS NULL THEN 0 ELSE k.gpu_dur_ns END) AS DOUBLE) / sum(k.gpu_dur_ns),
                CAST(sum(CASE WHEN k.path LIKE '%block%' THEN k.gpu_dur_ns ELSE 0 END) AS DOUBLE) / sum(k.gpu_dur_ns)
                FROM kernels k JOIN steps s ON s.step = k.step WHERE k.kind = 'kernel' AND k.phase = 'decode' GROUP BY s.thread ORDER BY s.thread" "$with")
  holds "layers of $told threads" "$told == 2"
  "$cs" export kineto "$with" --by-thread >/dev/null && [ -s "$with/kineto/rank1.json" ] && echo "  ok    traces of PyTorch's form" ||
    wrong "no traces of PyTorch's form"
  with=$out/kernels-1000-slow-none-1
  told=0
  while IFS=, read -r rank devices kernels named layers; do
    told=$((told + 1))
    holds "rank $rank: $kernels kernels of decode on $devices device; with a path $named of their time, in a layer $layers" \
      "$devices == 1 && $named >= 0.99 && $layers >= 0.8"
  done < <(ask "SELECT rank, count(DISTINCT device), count(*), CAST(sum(CASE WHEN path IS NULL THEN 0 ELSE gpu_dur_ns END) AS DOUBLE) / sum(gpu_dur_ns),
                CAST(sum(CASE WHEN path LIKE '%block%' THEN gpu_dur_ns ELSE 0 END) AS DOUBLE) / sum(gpu_dur_ns)
                FROM kernels WHERE kind = 'kernel' AND phase = 'decode' GROUP BY rank ORDER BY rank" "$with")
  holds "layers of $told ranks" "$told == 2"
  ranks=$(ask "SELECT count(DISTINCT rank) FROM kernels" "$with")
  holds "kernels of $ranks ranks" "${ranks:-0} == 2"
  "$cs" export perfetto "$with" >/dev/null && "$cs" export kineto "$with" >/dev/null && [ -s "$with/kineto/rank1.json" ] &&
    echo "  ok    traces for Perfetto and of PyTorch's form" || wrong "no traces for Perfetto or of PyTorch's form"
fi
if [ $failed = 0 ]; then echo "all checks hold"; else echo "some checks do not hold"; fi
exit $failed
