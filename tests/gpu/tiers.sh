#!/usr/bin/env bash
# What knows GPU time better at equal cost: marks on every interval of one step in N (`--gpu-timing adaptive`), or marks on steps and windows of
# kernels, often (`--gpu-timing steps --cupti=1/50`) or as `profile` has them by itself (`usual`: `5/5s`). Seven minutes on an H200.
# Usage: tests/gpu/tiers.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed), and for the case `threads`
#            `candlescope-server` (built with its feature cuda) and `load`
#   OUT      folder for results (default: target/bench/tiers)
#   TAKES    takes (default 2); CASES ("smollm2 batch16 llama threads graph")
# The truth of each case is a run whose kernels are all recorded: the sum of an operator's kernels, of a step. Prints for each case, take
# and way: what the operators' GPU time adds up to against the truth (1 is right), the mean error of an operator, weighted by its time,
# the largest error of one that takes 5 % or more, operators of the truth that the way says nothing of, and what recording takes of
# all steps, as the run measured it in place. Writes $OUT/tiers.txt and a line of JSON for each into $OUT/tiers.jsonl. Fails if a run
# does. Which is better is for whoever reads it.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/tiers}
mkdir -p "$out"
: >"$out/tiers.txt"
: >"$out/tiers.jsonl"
export RAYON_NUM_THREADS=${RAYON_NUM_THREADS:-1}
failed=0

served() { # RUN KEYS: four threads, each with a model of its own
  local log=$1.server
  CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} candlescope-server --model config:smollm2-135m --device cuda:0 --workers 4 --listen 127.0.0.1:0 \
    --parquet "$1" --record "$2" 2>"$log" &
  local pid=$!
  until grep -q "^listening on" "$log" 2>/dev/null; do
    kill -0 $pid 2>/dev/null || { cat "$log"; return 1; }
    sleep 0.2
  done
  load --server "$(sed -n "s/^listening on //p" "$log")" --seconds 6 --clients 4 --max-tokens 64 --prompt-tokens 64 >"$1.load" || return 1
  kill -TERM $pid && wait $pid
}

for take in $(seq "${TAKES:-2}"); do
  for name in ${CASES:-smollm2 batch16 llama threads graph}; do
    for way in truth marks windows usual; do
      run=$out/$name-$way-$take
      rm -rf "$run"
      case $way in
        truth) options=(--gpu-timing steps --cupti) keys=gpu-timing=steps,cupti=all ;;
        marks) options=(--gpu-timing adaptive --overhead-probe 5) keys=gpu-timing=adaptive,overhead-probe=5 ;;
        usual) options=(--gpu-timing steps --cupti=5/5s --overhead-probe 5) keys=gpu-timing=steps,cupti=5/5s,overhead-probe=5 ;;
        windows) options=(--gpu-timing steps --cupti=1/50 --overhead-probe 5) keys=gpu-timing=steps,cupti=1/50,overhead-probe=5 ;;
      esac
      case $name in
        smollm2) model=smollm2-135m ;;
        batch16) model=smollm2-135m options+=(--batch 16) ;;
        llama) model=llama-3-8b ;;
        graph) model=smollm2-135m options+=(--cuda-graph --max-model-len 512) ;;
      esac
      if [ "$name" = threads ]; then
        served "$run" "$keys,stacks=off" >"$run.txt" 2>&1
      else
        candlescope-cuda profile --model "config:$model" --device cuda:0 --dtype bf16 --prompt-tokens 64 --max-new-tokens 300 --ignore-eos \
          --warmup 1 --repeats 5 --no-progress --set stacks=off "${options[@]}" --out "$run" >"$run.txt" 2>&1
      fi || { echo "failed: $name $way $take: $(tail -n 2 "$run.txt")" | tee -a "$out/tiers.txt"; failed=1; continue; }
      # Of each operator and source: intervals that have a GPU time, their mean, and intervals in all, of decoding.
      candlescope-cuda query --json --limit 0 "SELECT found.operator, found.source, found.measured, found.mean_ns, counted.calls FROM \
        (SELECT i.operator, i.source, count(*) AS measured, avg(i.gpu_dur_ns) AS mean_ns FROM gpu_intervals i JOIN measured_steps s ON \
        s.run = i.run AND s.step = i.step WHERE s.phase = 'decode' GROUP BY 1, 2) AS found JOIN (SELECT operator, count(*) AS calls FROM \
        measured_spans WHERE phase = 'decode' GROUP BY 1) AS counted ON counted.operator = found.operator" "$run" >"$run.json" 2>>"$run.txt" ||
        { echo "failed: $name $way $take: $(tail -n 1 "$run.txt")" | tee -a "$out/tiers.txt"; failed=1; }
    done
    python3 - "$out" "$name" "$take" <<'P' | tee -a "$out/tiers.txt" || failed=1
import json, sys
out, case, take = sys.argv[1:]


def operators(way, source):
    rows = json.load(open(f"{out}/{case}-{way}-{take}.json"))["rows"]
    return {row["operator"]: row for row in rows if row["source"] == source}


def percent(of):
    if not of or of.get("ratio") is None:
        return "not measured"
    return "%.2f %% (%.2f to %.2f)" % tuple(100 * (of.get(key) or 0) for key in ("ratio", "low", "high"))


# Operators with nothing below them: of the others an event's time has gaps between operators, which are nobody's work.
every = {name: row["mean_ns"] for name, row in operators("truth", "cupti").items() if row["mean_ns"]}
truth = {name: ns for name, ns in every.items() if not any(other.startswith(name + "/") for other in every)}
for way, source in (("marks", "event"), ("windows", "cupti"), ("usual", "cupti")):
    found = operators(way, source)
    known = {name: found[name]["mean_ns"] for name in truth if name in found}
    # Intervals of a run: the same for all ways, so that the truth's weigh.
    weight = {name: ns * operators("truth", "cupti")[name]["calls"] for name, ns in truth.items()}
    total = sum(weight[name] for name in known)
    error = {name: known[name] / truth[name] - 1 for name in known}
    mean = sum(abs(error[name]) * weight[name] for name in known) / total if total else None
    ratio = sum((1 + error[name]) * weight[name] for name in known) / total if total else None
    large = {name: of for name, of in error.items() if weight[name] >= 0.05 * sum(weight.values())}
    worst = max(large, key=lambda name: abs(large[name]), default=None)
    manifest = json.load(open(f"{out}/{case}-{way}-{take}/run.json"))
    place = (manifest.get("overhead") or {}).get("in_place") or {}
    line = {"case": case, "take": int(take), "way": way, "ratio": ratio, "mean_error": mean, "worst": worst,
            "worst_error": large.get(worst), "unknown": sorted(set(truth) - set(known)), "measured": sum(r["measured"] for r in found.values())}
    print(json.dumps(line), file=open(f"{out}/tiers.jsonl", "a"))
    said = "says nothing" if mean is None else "adds up to %.3f of the truth; an operator is off by %.1f %%, at most %+.1f %% (%s)" % (
        ratio, 100 * mean, 100 * (large.get(worst) or 0), worst)
    print(f"{case} take {take}, {way}: {said}; {len(line['unknown'])} of {len(truth)} operators unknown; a recorded step costs "
          f"{percent(place)}, one of a window {percent(place.get('windows'))}")
sys.exit(not truth)
P
    [ "${PIPESTATUS[0]}" = 0 ] || failed=1
  done
done
exit $failed
