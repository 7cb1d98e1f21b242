#!/usr/bin/env bash
# The figures of docs/measurements/gpu.md, on any machine with a CUDA device and nothing else running on it.
# Usage: tests/gpu/figures.sh [overhead] [prefill] [big] [cupti] [peers] [accuracy] [soak]      (all but soak by default)
#   BIN  folder with the programs `candlescope` and `gpu_overhead` (default: target/release), built with
#        cargo build --release -p candlescope-cli -p candlescope-bench --bins \
#          --features candlescope-cli/cuda,candlescope-cli/nvtx,candlescope-bench/gpu-nvtx
#   OUT  folder for results (default: target/bench)
#   NSYS the nsys to use (default: the one on the PATH)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=${BIN:-$root/target/release}
out=${OUT:-$root/target/bench}
nsys=${NSYS:-$(command -v nsys || true)}
mkdir -p "$out"
export CANDLESCOPE_BENCH_DIR=$out
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- overhead prefill big cupti peers accuracy

overhead() { # decode of the worst case: a model so small that the GPU waits for the host
  "$bin/gpu_overhead" --name gpu_overhead --rounds "${ROUNDS:-60}"
}
prefill() {
  "$bin/gpu_overhead" --name gpu_prefill --rounds "${PREFILL_ROUNDS:-25}" --prompt-tokens 2048 --tokens 4 --modes plain-again,host,steps,blocks,adaptive,all
}
big() { # a model that keeps the GPU busy
  "$bin/gpu_overhead" --name gpu_big --model llama-3-8b --rounds "${BIG_ROUNDS:-12}" --tokens 16 --modes plain-again,off,host,steps,blocks,adaptive,all
  "$bin/gpu_overhead" --name gpu_big_prefill --model llama-3-8b --rounds "${BIG_ROUNDS:-9}" --tokens 2 --prompt-tokens 2048 --modes plain-again,host,adaptive,all
}
cupti() { # one long generation a turn, so that a window of 5 tokens in 500 comes round
  "$bin/gpu_overhead" --name gpu_cupti --rounds "${CUPTI_ROUNDS:-9}" --tokens 250 --modes plain-again --apart plain,cupti-idle,cupti-window,cupti
}
peers() {
  python3 "$root/tests/gpu/torch_peer.py" --json "$out/gpu_torch.json"
  [ -n "$nsys" ] || { echo "no nsys: its cost is not measured"; return; }
  # nsys watches a process from its start: processes in turns.
  for round in 1 2 3; do
    "$bin/gpu_overhead" --name "gpu_bare_$round" --rounds 8 --modes plain-again | tail -n +3 | head -1
    "$nsys" profile -t cuda,nvtx --sample=none --cpuctxsw=none -f true -o "$scratch/peer" \
      "$bin/gpu_overhead" --name "gpu_nsys_$round" --rounds 8 --modes plain-again | grep "^plain " || true
    ls -l "$scratch"/peer.nsys-rep
  done
  "$nsys" stats --force-export=true -r cuda_api_sum,cuda_gpu_kern_sum -f csv -o "$scratch/peer" "$scratch/peer.nsys-rep" >/dev/null 2>&1 || true
}
accuracy() { # the same decode seen by marks, by CUPTI and by Nsight Systems
  local model=(--device cuda:0 --model config:smollm2-135m --dtype bf16 --prompt-tokens 2048 --max-new-tokens 32 --repeats 2 --ignore-eos --no-progress)
  "$bin/candlescope" profile "${model[@]}" --gpu-timing all --cupti --out "$scratch/both" >/dev/null
  cp "$scratch/both/run.json" "$out/accuracy_cupti_run.json"; cp "$scratch/both/metrics.json" "$out/accuracy_cupti_metrics.json"
  [ -n "$nsys" ] || { echo "no nsys: its projection is not compared"; return; }
  "$nsys" profile -t cuda,nvtx --sample=none --cpuctxsw=none -f true -o "$scratch/nsys" \
    "$bin/candlescope" profile "${model[@]}" --gpu-timing all --out "$scratch/under" >/dev/null
  "$nsys" export -t sqlite -f true -o "$scratch/nsys.sqlite" "$scratch/nsys.nsys-rep"
  "$bin/candlescope" report "$scratch/under" --nsys "$scratch/nsys.sqlite" >"$out/accuracy_nsys.txt"
  cp "$scratch/under/metrics.json" "$out/accuracy_nsys_metrics.json"
  "$nsys" stats -r nvtx_gpu_proj_sum -f csv "$scratch/nsys.sqlite" >"$out/accuracy_nvtx_gpu_proj_sum.csv" || true
  tail -60 "$out/accuracy_nsys.txt"; head -20 "$out/accuracy_nvtx_gpu_proj_sum.csv"
}
soak() {
  "$bin/gpu_overhead" --name gpu --soak "${SOAK_SECONDS:-300}" --tokens 200
}
for what in "$@"; do
  echo "== $what"
  "$what"
done
