#!/usr/bin/env bash
# `candlescope record` on PyTorch as it is: every mode of record_torch.py recorded, kernels beside PyTorch's own profiler, what recording
# costs beside nothing, Kineto and Nsight Systems; programs that crash, that fork, that have no CUDA, and one in C. Five minutes of a GPU.
# Usage: tests/gpu/record.sh
#   CANDLESCOPE_BINARY         the command (default: target/debug/candlescope)
#   CANDLESCOPE_INJECT_LIBRARY the library (default: beside it)
#   OUT                        folder for runs (default: target/bench/record)
#   ROUNDS                     rounds of costs (3), TOKENS tokens of each (200)
#   NSYS                       Nsight Systems, if it is to be compared with
#   MODES                      ways of running (eager ranges emit compile graph threads)
#   PARTS                      which of: ways ends beside windows candle c starts profilers costs
#   STARTS                     starts of the program in C with contexts of many threads (40), THREADS how many (1 2 8 32)
#   CANDLE                     a `candlescope` that was built with CUDA: the same model in candle, as it is recorded from outside and by itself
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cs=${CANDLESCOPE_BINARY:-$root/target/debug/candlescope}
out=${OUT:-$root/target/bench/record}
tokens=${TOKENS:-200}
mkdir -p "$out"
torch() { python3 -W ignore "$here/record_torch.py" "$@"; }
recorded() { # NAME OPTIONS… -- MODE…
  local name=$1 options=()
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  "$cs" record --out "$out/$name" "${options[@]}" -- python3 -W ignore "$here/record_torch.py" "$@" 2>&1
  echo "status $?"
}
ask() { "$cs" query "$1" "$out/$2"; }

part() { [[ " ${PARTS:-ways ends beside windows candle c starts profilers costs} " == *" $1 "* ]]; }
for shape in smollm2 8b; do python3 -W ignore "$here/record_torch.py" config --shape $shape --config "$out/$shape.json"; done
told() { echo --model-config "$out/$1.json" --work batch=1,prompt=64,dtype=bf16; }

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
part ways && echo "-- each way"
for mode in $(part ways && echo "${MODES:-eager ranges emit compile graph threads}"); do
  echo "[$mode]"
  recorded "$mode" $(told smollm2) -- "$mode" --tokens 50
  ask "SELECT phase, count(*) AS steps, CAST(median(host_dur_ns) AS BIGINT) AS host_ns, CAST(median(gpu_dur_ns) AS BIGINT) AS gpu_ns FROM steps GROUP BY phase ORDER BY phase" "$mode"
  ask "SELECT kind, count(*) AS n, sum(CASE WHEN path IS NULL THEN 1 ELSE 0 END) AS without_interval, sum(CASE WHEN graph IS NULL THEN 0 ELSE 1 END) AS of_graphs, CAST(sum(gpu_dur_ns) AS BIGINT) AS ns FROM kernels GROUP BY kind ORDER BY n DESC" "$mode"
done
if part ways; then
echo "[8b]"
recorded ranges-8b $(told 8b) -- ranges --shape 8b --tokens 30
ask "SELECT phase, count(*) AS steps, CAST(median(host_dur_ns) AS BIGINT) AS host_ns, CAST(median(gpu_dur_ns) AS BIGINT) AS gpu_ns FROM steps GROUP BY phase ORDER BY phase" ranges-8b
fi
if part ends; then
echo "-- a forked worker that ends by _exit; no CUDA; a crash"
recorded fork --follow-forks -- fork --tokens 20
recorded none -- none
"$cs" record --out "$out/crash" -- python3 -W ignore -c 'import os, torch; torch.ones(1000, 1000, device="cuda").sum().item(); os.abort()' 2>&1 | tail -2
"$cs" record --out "$out/killed" -- python3 -W ignore -c '
import os, time, torch
began = time.time()
while time.time() < began + 5: torch.ones(1000, 1000, device="cuda").sum().item()
os.kill(os.getpid(), 9)' 2>&1 | tail -2
fi
if part windows; then
echo "-- kernels of 5 steps every 2 s, no ranges"
recorded windows --cupti 5/2s -- eager --tokens 300
ask "SELECT s.path, count(*) AS steps, count(k.step) AS with_kernels, CAST(median(k.n) AS BIGINT) AS kernels FROM spans s LEFT JOIN (SELECT step, count(*) AS n FROM kernels GROUP BY step) k ON k.step = s.step WHERE s.parent_seq IS NULL GROUP BY s.path ORDER BY s.path" windows
fi
if part c; then
echo "-- a program in C: 100 steps of three kernels; one that starts the driver and ends"
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
"$nvcc" -o "$out/record_program" "$here/record_program.cu" -lcuda && {
  "$cs" record --out "$out/c" -- "$out/record_program" 100 2>&1; echo "status $?"
  ask "SELECT path, count(*) AS steps FROM spans GROUP BY path" c
  ask "SELECT name, count(*) AS n FROM kernels GROUP BY name ORDER BY name" c
  began=$(date +%s%N)
  "$cs" record --out "$out/init" -- "$out/record_program" init 2>&1; echo "status $? after $((($(date +%s%N) - began) / 1000000)) ms"
}
fi
if part starts; then
echo "-- programs whose threads make contexts while they start: those that failed"
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
"$nvcc" -o "$out/record_program" "$here/record_program.cu" -lcuda && for threads in ${THREADS:-1 2 8 32}; do
  failed=0
  for start in $(seq "${STARTS:-40}"); do
    timeout -k 5 60 "$cs" record --out "$out/start-$threads-$start" -- "$out/record_program" contexts "$threads" >/dev/null 2>&1 || failed=$((failed + 1))
  done
  echo "$threads threads: $failed of ${STARTS:-40}; kernels of each start, of $((threads * 100)), and how many starts had so many:"
  for start in $(seq "${STARTS:-40}"); do "$cs" query "SELECT count(*) AS n FROM kernels WHERE kind = 'kernel'" "$out/start-$threads-$start" --format csv 2>/dev/null | tail -1; done | sort -n | uniq -c
done
fi
if part candle && [ -n "${CANDLE:-}" ]; then
echo "-- candle, by itself and from outside"
candle=("$CANDLE" profile --model config:smollm2-135m --device cuda:0 --dtype bf16 --prompt-tokens 64 --max-new-tokens 50 --ignore-eos --warmup 1 --repeats 2 --no-progress)
"${candle[@]}" --cupti --out "$out/candle" 2>&1 | tail -3
"$cs" record $(told smollm2) --out "$out/candle-outside" -- "${candle[@]}" --gpu-timing off --out "$out/candle-plain" 2>&1 | tail -3
"$cs" compare "$out/candle" "$out/ranges" --allow tokens
"$cs" compare --programs "$out/candle-outside" "$out/eager" --allow tokens
"$cs" compare --programs "$out/eager" "$out/compile"
fi
if part profilers; then
echo "-- another profiler in the program, and around it"
recorded kineto-inside -- ranges --tokens 20 --kineto "$out/k.json"
if [ -n "${NSYS:-}" ]; then
  "$NSYS" profile -t cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true -o "$out/around" "$cs" record --out "$out/nsys-around" -- \
    python3 -W ignore "$here/record_torch.py" ranges --tokens 20 2>&1 | tail -4
fi
fi
if part beside; then
echo "-- beside PyTorch's profiler: kernels of the same tokens"
torch ranges --tokens 50 --kineto "$out/kineto.json"
ask "SELECT count(*) AS kernels, sum(gpu_dur_ns) / 1e3 AS us FROM kernels WHERE kind = 'kernel' AND step >= (SELECT min(step) FROM spans WHERE phase = 'prefill')" ranges
fi
part costs || exit 0
echo "-- costs, in turns: milliseconds a token"
for round in $(seq "${ROUNDS:-3}"); do
  echo "plain $(torch ranges --tokens "$tokens" | grep -o '"ms": [0-9.]*')"
  echo "loaded $("$cs" record --cupti off --no-nvtx --out "$out/cost-$round-loaded" -- python3 -W ignore "$here/record_torch.py" ranges --tokens "$tokens" | grep -o '"ms": [0-9.]*')"
  echo "ranges $("$cs" record --cupti off --out "$out/cost-$round-ranges" -- python3 -W ignore "$here/record_torch.py" ranges --tokens "$tokens" | grep -o '"ms": [0-9.]*')"
  echo "5 each 5 s $("$cs" record --cupti 5/5s --no-nvtx --out "$out/cost-$round-time" -- python3 -W ignore "$here/record_torch.py" ranges --tokens "$tokens" | grep -o '"ms": [0-9.]*')"
  echo "windows $("$cs" record --cupti 5/100 --out "$out/cost-$round-windows" -- python3 -W ignore "$here/record_torch.py" ranges --tokens "$tokens" | grep -o '"ms": [0-9.]*')"
  echo "all $("$cs" record --out "$out/cost-$round-all" -- python3 -W ignore "$here/record_torch.py" ranges --tokens "$tokens" | grep -o '"ms": [0-9.]*')"
  echo "kineto $(torch ranges --tokens "$tokens" --kineto "$out/k.json" | grep -o '"ms": [0-9.]*')"
  if [ -n "${NSYS:-}" ]; then
    echo "nsys $("$NSYS" profile -t cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true -o "$out/nsys" python3 -W ignore "$here/record_torch.py" ranges --tokens "$tokens" 2>/dev/null | grep -o '"ms": [0-9.]*')"
  fi
done
