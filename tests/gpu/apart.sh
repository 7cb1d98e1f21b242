#!/usr/bin/env bash
# What `profile` costs as it is on a GPU (marks on steps, and windows of kernels at a distance), beside marks on layers and beside nothing on the
# device, in turns; six minutes on an H200.
# Usage: tests/gpu/apart.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed)
#   OUT      folder for results (default: target/bench/apart)
#   MODELS ("smollm2-135m:1 smollm2-135m:16 smollm2-135m:1:graph llama-3-8b:1": NAME:BATCH[:graph]); ROUNDS (5)
#   REPEATS (6, 3 at least) of TOKENS (64): as many as `profile` has by itself; WAYS ("nothing marks usual"; also windows, without marks on layers)
# Prints, for each model and way, what tokens, time to the first token and tokens a second are beside the first way: the median of the
# rounds with their range; and the steps that have kernels, by phase. Fails if a run does, or if one with windows has none or lost one kernel
# in a hundred. A graph has windows by an option, for `profile` gives it none by itself.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/apart}
mkdir -p "$out"
failed=0
read -ra ways <<<"${WAYS:-nothing marks usual}"
for case in ${MODELS:-smollm2-135m:1 smollm2-135m:16 smollm2-135m:1:graph llama-3-8b:1}; do
  IFS=: read -r model batch graph <<<"$case"
  for round in $(seq "${ROUNDS:-5}"); do
    # Whoever is first changes with each round.
    for at in $(seq 0 $((${#ways[@]} - 1))); do
      way=${ways[(at + round) % ${#ways[@]}]}
      case $way in
        nothing) options=(--gpu-timing off --cupti=off) ;;
        marks) options=(--cupti=off) ;;
        windows) options=(--gpu-timing steps --cupti=5/5s) ;;
        usual) options=() && [ -n "$graph" ] && options=(--cupti=5/5s) ;;
        *) echo "apart.sh: WAYS may have nothing, marks, windows and usual, not $way" >&2 && exit 1 ;;
      esac
      run=$out/$model-$batch$graph-$round-$way
      rm -rf "$run"
      candlescope-cuda profile --model "config:$model" --device cuda:0 --dtype bf16 --batch "$batch" ${graph:+--cuda-graph} --prompt-tokens 64 \
        --max-new-tokens "${TOKENS:-64}" --ignore-eos --warmup 1 --repeats "${REPEATS:-6}" --no-progress --set stacks=off "${options[@]}" \
        --out "$run" >"$run.txt" 2>&1 || { echo "failed: $case $way: $(tail -n 1 "$run.txt")"; failed=1; }
    done
  done
  python3 - "$out/$model-$batch$graph" "${ROUNDS:-5}" "$case" "${ways[@]}" <<'P' || failed=1
import json, statistics, sys
base, rounds, case, ways = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
FIGURES = {
    "median token": lambda f: f["tpot"]["median"], "mean token": lambda f: f["tpot"]["mean"], "median TTFT": lambda f: f["ttft"]["median"],
    "longest TTFT": lambda f: f["ttft"]["max"], "tokens/s": lambda f: f["output_tps"]["value"],
}
found, wrong, windows = {}, [], {}
for way in ways:
    for round in range(1, rounds + 1):
        try:
            run = json.load(open(f"{base}-{round}-{way}/run.json"))
            figures = json.load(open(f"{base}-{round}-{way}/metrics.json"))["figures"]
        except OSError as error:
            wrong.append(str(error))
            continue
        kernels = (run.get("gpu") or {}).get("kernels") or {}
        windows.setdefault(way, []).append((kernels.get("windows"), kernels.get("steps"), kernels.get("dropped")))
        # CUPTI may drop some at a window's end, which are counted; steps that lack some are in no figure.
        if bool(kernels.get("windows")) != (way in ("windows", "usual")) or kernels.get("dropped", 0) * 100 > kernels.get("recorded", 0):
            wrong.append(f"{way}, round {round}: {kernels}")
        for name, of in FIGURES.items():
            found.setdefault(name, {}).setdefault(way, {})[round] = of(figures)
for name, of in found.items():
    first = of.get(ways[0], {})
    if not first:
        continue
    line = f"{case} {name}: {ways[0]} {statistics.median(first.values()) / (1 if '/s' in name else 1e6):.3f}{'' if '/s' in name else ' ms'}"
    for way in ways[1:]:
        ratios = [value / first[round] for round, value in of.get(way, {}).items() if round in first]
        line += f"; {way} {statistics.median(ratios):.3f} times ({min(ratios):.3f} to {max(ratios):.3f})"
    print(line)
for way, of in windows.items():
    if any(count for count, *_ in of):
        print(f"{case} {way}: windows, steps, dropped: {of}")
for line in wrong:
    print("wrong:", line)
sys.exit(bool(wrong))
P
  for way in "${ways[@]}"; do
    [ "$way" != usual ] || candlescope-cuda query "SELECT phase, count(*) AS steps FROM steps WHERE step IN (SELECT step FROM kernels) GROUP BY phase" "$out/$model-$batch$graph-1-$way" ||
      failed=1
  done
done
exit $failed
