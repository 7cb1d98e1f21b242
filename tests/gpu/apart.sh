#!/usr/bin/env bash
# What windows of kernels at a distance (`--cupti=5/5s`) cost a whole run, beside the same without, in turns; four minutes on an H200.
# Usage: tests/gpu/apart.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed)
#   OUT      folder for results (default: target/bench/apart)
#   MODELS ("smollm2-135m:1 smollm2-135m:16 llama-3-8b:1": NAME:BATCH); ROUNDS (5); SECONDS_EACH (6)
# Prints, for each model, the ratio of the median and the mean token and of tokens a second, with windows to without: the median of the
# pairs with their range; and how many windows there were. Fails if a run does, or if one with windows has none or loses a kernel.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/apart}
mkdir -p "$out"
failed=0
for case in ${MODELS:-smollm2-135m:1 smollm2-135m:16 llama-3-8b:1}; do
  model=${case%:*} batch=${case#*:}
  # Tokens of some milliseconds each, so that a run lasts about as long as is said.
  tokens=400 tpot=6
  [ "$model" = llama-3-8b ] && tpot=12
  repeats=$((${SECONDS_EACH:-6} * 1000 / (tokens * tpot) + 1))
  for round in $(seq "${ROUNDS:-5}"); do
    ways="off 5/5s"
    [ $((round % 2)) = 0 ] && ways="5/5s off"
    for way in $ways; do
      run=$out/$model-$batch-$round-${way%%/*}
      candlescope-cuda profile --model "config:$model" --device cuda:0 --dtype bf16 --batch "$batch" --prompt-tokens 64 --max-new-tokens "$tokens" \
        --ignore-eos --warmup 1 --repeats "$repeats" --no-progress --set stacks=off --cupti="$way" --out "$run" >"$run.txt" 2>&1 ||
        { echo "failed: $case $way: $(tail -n 1 "$run.txt")"; failed=1; }
    done
  done
  python3 - "$out/$model-$batch" "${ROUNDS:-5}" "$case" <<'P' || failed=1
import json, statistics, sys
base, rounds, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def read(round, way):
    run = json.load(open(f"{base}-{round}-{way}/run.json"))
    figures = json.load(open(f"{base}-{round}-{way}/metrics.json"))["figures"]
    return run, figures
ratios, windows, wrong = {"median token": [], "mean token": [], "tokens/s": []}, [], []
for round in range(1, rounds + 1):
    (plain, without), (run, figures) = read(round, "off"), read(round, "5")
    kernels = (run.get("gpu") or {}).get("kernels") or {}
    windows.append(kernels.get("windows", 0))
    if not kernels.get("windows") or kernels.get("dropped") or (plain.get("gpu") or {}).get("kernels"):
        wrong.append(f"round {round}: {kernels}")
    ratios["median token"].append(figures["tpot"]["median"] / without["tpot"]["median"])
    ratios["mean token"].append(figures["tpot"]["mean"] / without["tpot"]["mean"])
    ratios["tokens/s"].append(figures["output_tps"]["value"] / without["output_tps"]["value"])
for name, of in ratios.items():
    print(f"{case} {name}: {statistics.median(of):.4f} ({min(of):.4f} to {max(of):.4f}, {len(of)} pairs)")
print(f"{case} windows: {windows}")
for line in wrong:
    print("wrong:", line)
sys.exit(bool(wrong))
P
done
exit $failed
