#!/usr/bin/env bash
# A Llama of the shape of 8B split over two GPUs (candle and NCCL, a process each, and a thread each): ranks of one run. Whether both compute
# the same, what recording costs, with kernels and without, whether the rank that takes longest by itself is named and no other, in starts in
# which one is slow on purpose and in such in which none is (hosts differ by themselves: check_ranks.py), whether both devices and every
# layer are in the runs, what the link carries, and kernels beside HolisticTraceAnalysis and Nsight Systems.
# Usage: tests/gpu/ranks.sh
#   TP       the program (cargo build -p candlescope-bench --features nccl --bin tensor_parallel; NCCL's library where the linker looks)
#   CANDLESCOPE_BINARY  the command (default: target/debug/candlescope)
#   OUT      folder for runs; what an earlier start left there is removed (default: target/bench/ranks). The lines of each part are also in
#            $OUT/results-PART.txt, and all that Nsight Systems said in $OUT/nsys.txt
#   ROUNDS   rounds of plain and recorded in turns (3); COST, COST_KERNELS: the most they may take, beside plain (1.25, 1.6)
#   STARTS   starts with each of no slow rank, rank 0 and rank 1 (3); SHARE by which a step is longer then (0.2)
#   NSYS     Nsight Systems (default: the one on the PATH; without one it is not compared with)
#   CANDLESCOPE_HTA_PYTHON  a Python that has HolisticTraceAnalysis (default: python3, if it does; else it is not compared with)
#   LIMIT    seconds that a start may take: one that hangs is ended, and said (150; NSYS_LIMIT below Nsight Systems: 300). After two of them
#            nothing more is started: each would take as long
#   ROWS     sequences of a step of which the devices, and not the hosts, set the time (2048), for the part `device`
#   PARTS    which of: costs starts device contents hta nsight threads windows
# Its status is 0 if all checks hold; each that does not is printed with WRONG.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tp=${TP:-$root/target/debug/tensor_parallel}
export CANDLESCOPE_BINARY=${CANDLESCOPE_BINARY:-$root/target/debug/candlescope}
cs=$CANDLESCOPE_BINARY
out=${OUT:-$root/target/bench/ranks}
share=${SHARE:-0.2}
nsys=${NSYS:-$(command -v nsys || true)}
# A program that uses NVLink multicast can put the GPUs of a shared host out of service.
export NCCL_NVLS_ENABLE=0
failed=0
part() { [[ " ${PARTS:-costs starts device contents hta nsight threads windows} " == *" $1 "* ]]; }
wrong() { echo "  WRONG $*"; failed=1; }

# In a file, because starts are parts of pipelines.
hung() { echo "$*" >>"$out/hung.txt"; }
gives_up() { [ "$(cat "$out/hung.txt" 2>/dev/null | wc -l)" -ge 2 ]; }

both() { # OPTIONS…: a process a rank; with {} for the rank in them. Its status says whether both ended well
  local meet pids=() rank status ended=0
  if gives_up; then
    wrong "not started: two starts before did not end"
    return 1
  fi
  meet=$(mktemp -u)
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 timeout -k 5 "${LIMIT:-150}" ${PREFIX//\{\}/$rank} "$tp" --meet "$meet" "${@//\{\}/$rank}" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid"
    status=$?
    [ $status = 0 ] || [ $ended = 124 ] || [ $ended = 137 ] || ended=$status
  done
  rm -f "$meet"
  if [ $ended = 124 ] || [ $ended = 137 ]; then
    wrong "a rank did not end in ${LIMIT:-150} s"
    hung "$@"
  fi
  return $ended
}
PREFIX=
# FOLDER UNSLOWED SLOW OPTIONS…: what analyze said of a start (FOLDER.json) beside what its ranks took by themselves, which is kept in
# FOLDER.own.json; UNSLOWED is how the names of those begin in which no rank is slow.
judge() {
  local folder=$1 slow=$3 unslowed=("$out/$2"*.own.json)
  shift 3
  [ $slow != none ] && [ -e "${unslowed[0]}" ] && set -- "$@" --unslowed "${unslowed[@]}"
  "$here/check_ranks.py" "$folder" --slow "$slow" --share "$share" --keep "$folder.own.json" "$@" <"$folder.json" || failed=1
}
ask() { "$cs" query "$1" "$2" --format csv | tail -n +2; } # SQL FOLDER: rows without a header
holds() { # WHAT CONDITION: an expression of awk
  if awk "BEGIN { exit !($2) }"; then echo "  ok    $1"; else wrong "$1"; fi
}
# PART: does it. Its lines also go to a file of its own: other output, such as Nsight's of its progress, cannot push them out there.
kept() {
  local pipe writer
  pipe=$(mktemp -u)
  mkfifo "$pipe"
  tee "$out/results-$1.txt" <"$pipe" &
  writer=$!
  # No program of the part inherits our own output, which whoever reads it would wait for.
  "part_$1" >"$pipe" 2>&1
  wait "$writer"
  rm -f "$pipe"
}
# What Nsight Systems says of its progress is left out, which it writes over itself by carriage returns.
without_progress() { tr '\r' '\n' | grep -vE '^ *$|^\[[0-9]+/[0-9]+\] \[|\[[= ]*[0-9]+ ?%|^(Generating|Generated|Processing|Processed|Collecting|Importing|Exporting|Capturing|WARNING: CPU IP)|^ */.*\.(nsys-rep|sqlite|qdstrm)$'; }
median() { sort -g | awk '{ all[NR] = $1 } END { if (NR) print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2; else print 0 }'; }
ms() { sed -n 's/.*: \([0-9.]*\) ms a token.*/\1/p'; }

nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
nvidia-smi topo -m | head -4
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)
[ "$gpus" -ge 2 ] || { echo "ranks.sh: wants two GPUs, there are $gpus: tests/gpu/ranks_one_gpu.sh wants one"; exit 2; }
for file in "$tp" "$cs"; do [ -x "$file" ] || { echo "ranks.sh: there is no $file"; exit 2; }; done
mkdir -p "$out"
rm -rf "${out:?}"/{plain,host,kernels,slow,device,windows,nsys,threads,results}-* "${out:?}"/{one,nsys,hung}.txt

part_costs() {
  echo "-- one GPU"
  timeout -k 5 "${LIMIT:-150}" "$tp" --meet /nowhere --exchange 0 | tee "$out/one.txt" || wrong "it ended with an error"
  for round in $(seq "${ROUNDS:-3}"); do
    echo "-- round $round: plain, recorded without kernels, recorded with a window of kernels"
    both | tee "$out/plain-$round.txt" || wrong "a rank ended with an error"
    both --out "$out/host-$round/rank-{}" --kernels 0 | tee "$out/host-$round.txt" || wrong "a rank ended with an error"
    both --out "$out/kernels-$round/rank-{}" --tokens 60 --kernels 1000 | tee "$out/kernels-$round.txt" || wrong "a rank ended with an error"
  done
  tokens=$(cat "$out"/plain-*.txt "$out"/host-*.txt | sed -n 's/.*last token //p' | sort -u)
  holds "both ranks end with one token, recorded or not: $(echo $tokens)" "$(echo "$tokens" | wc -w) == 1"
  # Parts of sums are rounded to 16 bits, a whole is not: that may choose another token.
  echo "        one GPU ends with $(sed -n 's/.*last token //p' "$out/one.txt")"
  plain=$(cat "$out"/plain-*.txt | ms | median)
  host=$(cat "$out"/host-*.txt | ms | median)
  kernels=$(cat "$out"/kernels-*.txt | ms | median)
  echo "        ms a token, medians of ${ROUNDS:-3} starts: plain $plain, recorded $host, with every kernel $kernels"
  holds "recorded takes at most ${COST:-1.25} times as long" "$plain > 0 && $host > 0 && $host <= ${COST:-1.25} * $plain"
  holds "with every kernel at most ${COST_KERNELS:-1.6} times" "$plain > 0 && $kernels > 0 && $kernels <= ${COST_KERNELS:-1.6} * $plain"
}
if part costs; then kept costs; fi

# One of each is needed below.
starts=${STARTS:-3}
part_starts() {
  local most=$starts
  part starts || most=1
  for slow in none 0 1; do
    part starts || [ $slow = none ] || continue
    for start in $(seq "$most"); do
      echo "-- slow: $slow, start $start"
      options=()
      [ $slow = none ] || options=(--slow-rank "$slow" --slow-share "$share")
      folder=$out/slow-$slow-$start
      both --out "$folder/rank-{}" --tokens 60 --kernels 1000 "${options[@]}" || wrong "a rank ended with an error"
      "$cs" analyze "$folder" --json >"$folder.json" || wrong "analyze ended with an error"
      judge "$folder" slow-none- "$slow" --bus 0.3
    done
  done
}
if part starts || part contents || part hta || part nsight; then kept starts; fi
even=$out/slow-none-1

# Hosts of two ranks may differ by as much as a slow rank is slow. Here they are ahead of their devices.
part_device() {
  for slow in none 0 1; do
    for start in $(seq "$starts"); do
      echo "-- the devices set the time, slow: $slow, start $start"
      options=()
      [ $slow = none ] || options=(--slow-rank "$slow" --slow-share "$share")
      folder=$out/device-$slow-$start
      both --out "$folder/rank-{}" --rows "${ROWS:-2048}" --context 14 --tokens 34 --kernels 1000 "${options[@]}" || wrong "a rank ended with an error"
      "$cs" analyze "$folder" --json >"$folder.json" || wrong "analyze ended with an error"
      judge "$folder" device-none- "$slow" --steps 20
    done
  done
}
if part device; then kept device; fi

part_contents() {
  echo "-- what is in a start without a slow rank"
  "$cs" analyze "$even" || wrong "analyze ended with an error"
  devices=$(ask "SELECT count(DISTINCT device) FROM samples WHERE metric = 'hw_power_watts' AND device LIKE 'GPU-%'" "$even")
  holds "power of $devices devices by NVML" "${devices:-0} >= 2"
  used=$(ask "SELECT count(DISTINCT device) FROM kernels" "$even")
  holds "kernels of $used devices" "${used:-0} == 2"
  told=0
  while IFS=, read -r rank kernels named layers; do
    told=$((told + 1))
    holds "rank $rank: $kernels kernels of decode; with a path $named of their time, in a layer $layers" "$named >= 0.99 && $layers >= 0.85"
  done < <(ask "SELECT rank, count(*), CAST(sum(CASE WHEN path IS NULL THEN 0 ELSE gpu_dur_ns END) AS DOUBLE) / sum(gpu_dur_ns),
                CAST(sum(CASE WHEN path LIKE '%block%' THEN gpu_dur_ns ELSE 0 END) AS DOUBLE) / sum(gpu_dur_ns)
                FROM kernels WHERE kind = 'kernel' AND phase = 'decode' GROUP BY rank ORDER BY rank" "$even")
  holds "layers of $told ranks" "$told == 2"
  marked=$(ask "SELECT count(*) FROM (SELECT rank FROM steps WHERE gpu_source = 'event' GROUP BY rank HAVING count(*) >= 30)" "$even")
  holds "steps of ${marked:-0} ranks have marks on their device" "${marked:-0} == 2"
  ranks=$(ask "SELECT count(DISTINCT rank) FROM kernels WHERE name LIKE 'nccl%'" "$even")
  holds "kernels of NCCL on $ranks ranks" "${ranks:-0} == 2"
  ask "SELECT name, count(*) FROM kernels WHERE name LIKE 'nccl%' GROUP BY name ORDER BY name" "$even" | sed 's/^/        /'
  "$cs" export perfetto "$even" >/dev/null && [ -s "$even/ranks.pftrace" ] && echo "  ok    a trace for Perfetto" || wrong "no trace for Perfetto"
  "$cs" export kineto "$even" >/dev/null && [ -s "$even/kineto/rank1.json" ] && echo "  ok    traces of PyTorch's form" || wrong "no traces of PyTorch's form"
}
if part contents; then kept contents; fi

part_hta() {
  python=${CANDLESCOPE_HTA_PYTHON:-python3}
  if "$python" -c 'import hta' 2>/dev/null; then
    echo "-- HolisticTraceAnalysis"
    CANDLESCOPE_HTA_PYTHON=$python "$root/tests/peers/hta_ranks.sh" "$even" 2>&1 | tail -5 || wrong "HTA says other times"
  else
    echo "-- no HolisticTraceAnalysis: not compared"
  fi
}
if part hta; then kept hta; fi

part_nsight() {
  if [ -n "$nsys" ]; then
    echo "-- Nsight Systems"
    for start in 1 2; do
      PREFIX="$nsys profile --trace=cuda --sample=none --cpuctxsw=none --force-overwrite=true --export=sqlite -o $out/nsys-$start-{}"
      # Into a file: something that Nsight leaves behind must not keep our pipe open.
      LIMIT=${NSYS_LIMIT:-300} both --tokens 60 >"$out/nsys.txt" 2>&1 || wrong "a rank ended with an error"
      PREFIX=
      without_progress <"$out/nsys.txt"
    done
    "$here/nsight_totals.py" "$even" "$out"/nsys-1-{0,1}.sqlite --again "$out"/nsys-2-{0,1}.sqlite || wrong "Nsight Systems saw other times"
  else
    echo "-- no Nsight Systems: not compared"
  fi
}
if part nsight; then kept nsight; fi

part_threads() {
  local hangs=0
  echo "-- one process, a thread a GPU"
  by_thread() { # NAME OPTIONS…
    local meet name=$1
    shift
    meet=$(mktemp -u)
    timeout -k 5 "${LIMIT:-150}" "$tp" --threads 2 --meet "$meet" --out "$out/threads-$name" --tokens 60 "$@" | tee "$out/threads-$name.txt"
    case ${PIPESTATUS[0]} in
      0) ;;
      124 | 137) wrong "it did not end in ${LIMIT:-150} s"; hangs=1 ;;
      *) wrong "it ended with an error" ;;
    esac
    rm -f "$meet"
  }
  for slow in none 0 1; do
    echo "-- threads, slow: $slow"
    options=()
    [ $slow = none ] || options=(--slow-rank "$slow" --slow-share "$share")
    by_thread $slow --kernels 1000 "${options[@]}"
    # The others would take as long for nothing.
    [ $hangs = 0 ] || break
    "$cs" analyze "$out/threads-$slow" --by-thread --json >"$out/threads-$slow.json" || wrong "analyze ended with an error"
    judge "$out/threads-$slow" threads-none "$slow" --bus 0.3
  done
  run=$out/threads-none
  "$cs" analyze "$run" --by-thread || wrong "analyze ended with an error"
  tokens=$(sed -n 's/.*last token //p' "$out"/threads-*.txt | sort -u)
  holds "all threads end with one token: $(echo $tokens)" "$(echo "$tokens" | wc -w) == 1"
  told=0
  while IFS=, read -r device threads kernels named layers; do
    told=$((told + 1))
    holds "$device: $kernels kernels of decode, of $threads thread; with a path $named of their time, in a layer $layers" \
      "$threads == 1 && $named >= 0.99 && $layers >= 0.85"
  done < <(ask "SELECT k.device, count(DISTINCT s.thread), count(*), CAST(sum(CASE WHEN k.path IS NULL THEN 0 ELSE k.gpu_dur_ns END) AS DOUBLE) / sum(k.gpu_dur_ns),
                CAST(sum(CASE WHEN k.path LIKE '%block%' THEN k.gpu_dur_ns ELSE 0 END) AS DOUBLE) / sum(k.gpu_dur_ns)
                FROM kernels k JOIN steps s ON s.step = k.step WHERE k.kind = 'kernel' AND k.phase = 'decode' GROUP BY k.device ORDER BY k.device" "$run")
  holds "layers on $told devices" "$told == 2"
  marked=$(ask "SELECT count(*) FROM (SELECT thread FROM steps WHERE gpu_source = 'event' GROUP BY thread HAVING count(*) >= 30)" "$run")
  holds "steps of ${marked:-0} threads have marks on their device" "${marked:-0} == 2"
  python=${CANDLESCOPE_HTA_PYTHON:-python3}
  if "$python" -c 'import hta' 2>/dev/null; then
    CANDLESCOPE_HTA_PYTHON=$python "$root/tests/peers/hta_ranks.sh" "$run" --by-thread 2>&1 | tail -5 || wrong "HTA says other times"
  fi
}
if part threads; then kept threads; fi
# CUPTI that leaves waits for all contexts, and a collective of one device for the launch of the other: a window that ends amid them once
# stopped a process for ever.
part_windows() {
  local start meet
  for start in $(seq "$starts"); do
    echo "-- windows that end amid collectives: a process a GPU, a thread a GPU; start $start"
    both --out "$out/windows-processes-$start/rank-{}" --layers 8 --tokens 100 --kernels 10 || wrong "a rank ended with an error"
    meet=$(mktemp -u)
    timeout -k 5 "${LIMIT:-150}" "$tp" --threads 2 --meet "$meet" --out "$out/windows-threads-$start" --layers 8 --tokens 100 --kernels 10 ||
      wrong "a process with a thread a GPU ended with status $?"
    rm -f "$meet"
    for run in "$out/windows-threads-$start" "$out/windows-processes-$start"; do
      told=$(ask "SELECT count(DISTINCT device), count(DISTINCT step), sum(CASE WHEN path IS NULL THEN 1 ELSE 0 END) FROM kernels WHERE phase = 'decode'" "$run")
      IFS=, read -r devices steps without <<<"$told"
      holds "$(basename "$run"): kernels of $devices devices, of $steps steps, ${without:-0} without an interval" "${devices:-0} == 2 && ${steps:-0} >= 10"
    done
  done
}
if part windows; then kept windows; fi
if [ $failed = 0 ]; then echo "all checks hold"; else echo "some checks do not hold"; fi
exit $failed
