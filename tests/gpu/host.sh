#!/usr/bin/env bash
# The host's part of launch-bound decoding by function, and what launching from several threads costs: three minutes on a CUDA device.
# Usage: tests/gpu/host.sh
#   BIN   folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed) and `gpu_threads`
#         (cargo build -p candlescope-bench --features gpu --bin gpu_threads)
#   OUT   folder for results (default: target/bench/host)
# Writes runs, `analyze --json` of each, call stacks as lines, and paired times with and without sampling into OUT.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/host}
mkdir -p "$out"
candlescope-cuda doctor >"$out/doctor.txt" 2>&1 || true
words=(--device cuda:0 --dtype bf16 --prompt-tokens 64 --max-new-tokens 200 --ignore-eos --no-progress --warmup 1)
say() { echo "== $*"; }

# The account of an eager decode down to functions.
for model in config:smollm2-135m config:gpt2; do
  name=${model#config:}
  candlescope-cuda profile "${words[@]}" --model "$model" --repeats 6 --cupti=10/50 --stacks --out "$out/$name" >"$out/$name.txt" 2>&1 ||
    { say "$name failed"; tail -5 "$out/$name.txt"; }
  candlescope-cuda analyze "$out/$name" --json >"$out/$name.json" 2>>"$out/$name.txt"
  candlescope-cuda analyze "$out/$name" --what-if graph >"$out/$name.analyze.txt" 2>&1
  candlescope-cuda export stacks "$out/$name" --out "$out/$name.folded" >/dev/null 2>&1
done

# Threads that launch on one device, one model each.
command -v gpu_threads >/dev/null || say 'no gpu_threads: launches from several threads are left out'
for threads in $(command -v gpu_threads >/dev/null && echo 1 2 4); do
  gpu_threads --threads "$threads" --tokens 200 --kernels --stacks --out "$out/threads-$threads" >"$out/threads-$threads.out" 2>&1 ||
    { say "threads $threads failed"; tail -3 "$out/threads-$threads.out"; }
  gpu_threads --threads "$threads" --tokens 400 --plain >"$out/threads-$threads.plain" 2>&1
  candlescope-cuda analyze "$out/threads-$threads" --json >"$out/threads-$threads.json" 2>&1
  candlescope-cuda analyze "$out/threads-$threads" >"$out/threads-$threads.analyze.txt" 2>&1
  candlescope-cuda export stacks "$out/threads-$threads" --out "$out/threads-$threads.folded" >/dev/null 2>&1
done

# What sampling costs a launch-bound decode: in turns, median time per output token in nanoseconds.
for round in 1 2 3 4 5 6 7 8; do
  line="$round"
  for stacks in off signals:499 perf:499; do
    rm -rf "$out/cost"
    candlescope-cuda profile "${words[@]}" --model config:smollm2-135m --repeats 6 --gpu-timing steps --set "stacks=$stacks" \
      --out "$out/cost" >/dev/null 2>&1
    ns=$(python3 -c "import json,sys; print(json.load(open(sys.argv[1]))['figures']['tpot']['median'])" "$out/cost/metrics.json" 2>/dev/null)
    line="$line $stacks=${ns:-failed}"
  done
  echo "$line" | tee -a "$out/cost.txt"
done
rm -rf "$out/cost"
