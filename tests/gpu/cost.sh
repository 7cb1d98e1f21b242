#!/usr/bin/env bash
# Whether a budget for the cost of recording is held on a CUDA device, by tier of GPU timing, eagerly and as a CUDA graph; three minutes
# on an H200.
# Usage: tests/gpu/cost.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed)
#   OUT      folder for results (default: target/bench/cost)
#   MODEL    name of `config:NAME` (default: smollm2-135m); BUDGETS ("none 1% 3%"); TIERS ("all adaptive windows graph_steps graph_windows").
#            `windows` is marks on steps and windows of kernels; `graph_windows` the same of steps that are replayed, whose kernels are
#            recorded node by node; `graph_steps` marks alone on these
# Prints, for each run: the tier, the budget, median time of a token, what recording takes of a recorded step and of all steps with
# its interval, whether the budget was held, and the share of steps that were recorded. Fails if a run does, or if a budget is exceeded
# for certain.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/cost}
mkdir -p "$out"
export RAYON_NUM_THREADS=${RAYON_NUM_THREADS:-1}
failed=0
for tier in ${TIERS:-all adaptive windows graph_steps graph_windows}; do
  for budget in ${BUDGETS:-none 1% 3%}; do
    run=$out/$tier-${budget%\%}
    case $tier in
      windows) options=(--gpu-timing steps --cupti=5/100) ;;
      graph_steps) options=(--gpu-timing steps --cuda-graph --max-model-len 1024) ;;
      graph_windows) options=(--gpu-timing steps --cuda-graph --max-model-len 1024 --cupti=5/100) ;;
      *) options=(--gpu-timing "$tier") ;;
    esac
    [ "$budget" = none ] && options+=(--overhead-probe 5) || options+=(--cost "$budget")
    if ! candlescope-cuda profile --model "config:${MODEL:-smollm2-135m}" --device cuda:0 --dtype bf16 --prompt-tokens 64 --max-new-tokens 400 \
      --ignore-eos --warmup 1 --repeats 8 --no-progress --set stacks=off "${options[@]}" --out "$run" >"$run.txt" 2>&1; then
      echo "failed: $tier $budget: $(tail -n 1 "$run.txt")"
      failed=1
      continue
    fi
    python3 - "$run" "$tier budget $budget" <<'P' || failed=1
import json, sys
run = json.load(open(sys.argv[1] + "/run.json"))
overhead, kernels = run["overhead"], (run.get("gpu") or {}).get("kernels") or {}
tpot = json.load(open(sys.argv[1] + "/metrics.json"))["figures"]["tpot"]["median"] / 1e6
def percent(of):
    if not of or of.get("ratio") is None:
        return "not measured"
    ends = " (%.2f to %.2f)" % (100 * of["low"], 100 * of["high"]) if of.get("low") is not None else ""
    return "%.2f %%%s" % (100 * of["ratio"], ends)
place, budget = overhead.get("in_place") or {}, overhead.get("budget")
print(sys.argv[2], "tpot %.3f ms" % tpot, "a recorded step", percent(place), "windows", percent(place.get("windows")), end=" ")
if budget:
    print("all steps", percent(budget), "held", budget["held"], "recorded %.1f %%" % (100 * budget["kept"]), end="")
if kernels.get("windows"):
    print("; %d windows, %d kernels of graphs, %d of them in their layers" % (kernels["windows"], kernels["of_graphs"], kernels["of_captured"]), end="")
print()
# A tier of graphs without a replay, or without its layers, would have measured something else.
graphs = "graph_windows" in sys.argv[2] and kernels.get("windows") and not kernels["of_captured"]
sys.exit(bool(graphs) or bool(budget) and budget["held"] is False)
P
  done
done
exit $failed
