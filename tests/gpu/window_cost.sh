#!/usr/bin/env bash
# What a window of kernels costs a run that has one every few seconds (`profile` as it is on a GPU), all of it: recording
# its steps, and what they wait before and after, while CUPTI is brought into the process and leaves it. Three minutes on
# an H200.
# Usage: tests/gpu/window_cost.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed)
#   OUT      folder for results (default: target/bench/window_cost)
#   MODELS   NAME:BATCH of each (smollm2-135m:1 smollm2-135m:16 llama-3-8b:1); SECONDS_EACH of decoding (40)
#   WINDOWS  (5/5s)
# Within one run, because starts of a program differ by a third on some hosts: from the start of a token to that of the
# next one of its request, against the median of those shortly before and after. Prints for each model what a window costs
# in milliseconds, as the mean over windows with a 95 % bootstrap interval, and when it is lost; the same for moments in the
# middle between windows, where nothing happens; and the difference as a share of the run. Fails if a run does, or if it
# has fewer than four windows.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/window_cost}
windows=${WINDOWS:-5/5s}
mkdir -p "$out"
failed=0
for case in ${MODELS:-smollm2-135m:1 smollm2-135m:16 llama-3-8b:1}; do
  IFS=: read -r model batch <<<"$case"
  run=$out/$model-$batch
  rm -rf "$run"
  # Long answers, so that few tokens are beside a prefill; how many requests follows from a token of 8 ms.
  if ! candlescope-cuda profile --model "config:$model" --device cuda:0 --dtype bf16 --batch "$batch" --prompt-tokens 64 \
    --max-new-tokens 500 --ignore-eos --warmup 1 --repeats $((${SECONDS_EACH:-40} / 4)) --no-progress --set stacks=off \
    --gpu-timing steps "--cupti=$windows" --out "$run" >"$run.txt" 2>&1; then
    echo "failed: $case: $(tail -n 1 "$run.txt")"
    failed=1
    continue
  fi
  python3 - "$run" "$case" <<'P' || failed=1
import bisect, csv, io, json, random, statistics, subprocess, sys
run, case = sys.argv[1:]
def rows(sql):
    command = ["candlescope-cuda", "query", sql, run, "--format", "csv", "--limit", "0"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(csv.DictReader(io.StringIO(said.stdout)))
steps = rows("SELECT step, phase, request, host_start_ns AS start FROM steps ORDER BY host_start_ns")
recorded = {row["step"] for row in rows("SELECT DISTINCT step FROM kernels")}
# Time from token to token, in ms, and when it began, in ms.
tokens, began = [], []
for one, next in zip(steps, steps[1:]):
    if one["phase"] == next["phase"] == "decode" and one["request"] == next["request"]:
        tokens.append((int(one["start"]) / 1e6, (int(next["start"]) - int(one["start"])) / 1e6))
    if one["step"] in recorded and (not began or int(one["start"]) / 1e6 - began[-1] > 1000):
        began.append(int(one["start"]) / 1e6)
# The first is open before what is measured.
began = [at for at in began if at - tokens[0][0] > 1000 and tokens[-1][0] - at > 2000]
if len(began) < 4:
    print(f"wrong: {case}: {len(began)} windows")
    sys.exit(1)
starts = [at for at, _ in tokens]
def between(low, high):
    return [took for _, took in tokens[bisect.bisect_left(starts, low):bisect.bisect_left(starts, high)]]
PARTS = [("500 ms before", -500, 0), ("the first 100 ms", 0, 100), ("up to 1 s", 100, 1000), ("up to 1.5 s", 1000, 1500)]
def lost(at, low, high):
    # The host's pace changes within a run: against the median of what is beside. Moments between windows five seconds
    # apart reach no window.
    near = between(at - 1000, at - 500) + between(at + 1500, at + 2000)
    if len(near) < 20:
        return None
    usual = statistics.median(near)
    # Other stalls of this machine, too: what they take is in the moments between windows.
    return sum(took - usual for took in between(at + low, at + high))
def told(name, moments):
    sums = {part: [l for at in moments if (l := lost(at, low, high)) is not None] for part, low, high in PARTS}
    whole = [sum(each) for each in zip(*sums.values())]
    if len(whole) < 3:
        print(f"{case} {name}: too few moments")
        return None
    draws = sorted(statistics.mean(random.Random(n).choices(whole, k=len(whole))) for n in range(2000))
    parts = ", ".join(f"{part} {statistics.mean(each):.1f}" for part, each in sums.items())
    print(f"{case} {name}: {statistics.mean(whole):.1f} ms ({draws[50]:.1f} to {draws[1949]:.1f}), n {len(whole)}; {parts}")
    return statistics.mean(whole)
median, lasted = statistics.median(took for _, took in tokens), (tokens[-1][0] - tokens[0][0]) / 1e3
print(f"{case}: a token {median:.3f} ms; {len(tokens)} tokens in {lasted:.1f} s, {len(began)} windows")
of_windows = told("a window costs", began)
of_none = told("moments without one", [(a + b) / 2 for a, b in zip(began, began[1:]) if b - a < 20000])
apart = statistics.mean(b - a for a, b in zip(began, began[1:]))
if of_windows is not None and of_none is not None:
    print(f"{case}: {of_windows - of_none:.1f} ms in {apart / 1e3:.2f} s: {100 * (of_windows - of_none) / apart:.2f} %")
kernels = json.load(open(run + "/run.json"))["gpu"]["kernels"]
print(f"{case}: {kernels['windows']} windows, {kernels['steps']} steps, {kernels['recorded']} records, {kernels['dropped']} dropped")
P
done
exit $failed
