#!/usr/bin/env bash
# How well latencies are predicted: records shapes × batches × contexts, each twice, calibrates, and leaves each out.
# 9 minutes on an H200, 12 on two CPU cores.
#
# Usage: tests/gpu/prediction.sh [record] [fit] [pack]      (the first two by default; fit takes what $RUNS holds)
#   BIN     folder with `candlescope`, and `candlescope-cuda` beside it (default: the ones on the PATH)
#   OUT     folder for results (default: target/bench)
#   RUNS    folder for the runs (default: $OUT/prediction/runs); pack puts them into $OUT/prediction/runs.tgz.*, 15 MB each
#   DEVICE  cuda:0 unless told otherwise; cpu records SmolLM2 and GPT-2 in f32
#   LIMIT   seconds for recording (default 470, on a CPU 900): what does not fit is left out, and said
#   MODELS  names of `config:NAME`, separated by spaces
#   GRID    BATCHxPROMPT, separated by spaces; prompts are cut to what a model's context holds
#   TOKENS, REPEATS, WARMUP   of each run
#
# Every case is recorded twice in the order ABBA: the first pass forwards, the second backwards. What the two differ by
# is the floor that no prediction can undercut. On a GPU two windows in each run record kernels, from the end of one
# request into the next: most requests are free of them, so that medians are of unobserved ones.
#
# Of each run what the fit reads is kept: run.json, requests, steps, samples, kernels.
# Writes $RUNS/*, and to $OUT/prediction calibration.txt, calibration.md, calibrated-peaks.json and figures.csv.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench}/prediction
device=${DEVICE:-cuda:0}
runs=${RUNS:-$out/runs}
mkdir -p "$out" "$runs"

if [ "$device" = cpu ]; then
  limit=${LIMIT:-900} tokens=${TOKENS:-12} repeats=${REPEATS:-4} warmup=${WARMUP:-1}
  models=${MODELS:-smollm2-135m gpt2}
  grid=${GRID:-1x32 4x32 1x128 2x64 8x16 4x128 1x384}
  more=(--dtype f32)
else
  limit=${LIMIT:-470} tokens=${TOKENS:-32} repeats=${REPEATS:-6} warmup=${WARMUP:-2}
  models=${MODELS:-smollm2-135m gpt2 tinyllama-1.1b qwen2.5-7b llama-3-8b}
  grid=${GRID:-1x32 1x512 1x1984 4x128 8x512 16x128 32x512 64x64}
  # Of every three requests: the last 8 steps of one, the prefill and 3 tokens of the next.
  more=(--dtype bf16 --gpu-timing steps "--cupti=4/$((3 * tokens - 20))/8/12/0")
fi

context() { # MODEL: tokens that its context holds
  case $1 in
    gpt2* | distilgpt2) echo 1024 ;;
    tinyllama* | embedded) echo 2048 ;;
    *) echo 8192 ;;
  esac
}

cases() { # lines of MODEL BATCH PROMPT, small and large models in turns
  local model case prompt most
  for case in $grid; do
    for model in $models; do
      prompt=${case#*x} most=$(($(context "$model") - tokens))
      echo "$model ${case%x*} $((prompt < most ? prompt : most))"
    done
  done
}

record() {
  local began=$SECONDS left=0 pass model batch prompt name
  for pass in a b; do
    while read -r model batch prompt; do
      name=$model.$batch.$prompt.$pass
      [ ! -e "$runs/$name/run.json" ] || continue
      if [ $((SECONDS - began)) -ge "$limit" ]; then
        echo "left out, no time: $name"
        left=$((left + 1))
        continue
      fi
      # A case that fails (memory) is said, and the others go on.
      candlescope profile --device "$device" --model "config:$model" --batch "$batch" --prompt-tokens "$prompt" \
        --max-new-tokens "$tokens" --repeats "$repeats" --warmup "$warmup" --ignore-eos --no-progress "${more[@]}" \
        --out "$runs/$name" >"$out/last.txt" 2>&1 </dev/null || {
        echo "failed: $name: $(tail -n 1 "$out/last.txt")"
        rm -rf "${runs:?}/$name"
        continue
      }
      rm -rf "$runs/$name/spans" "$runs/$name"/*.{html,md} "$runs/$name/metrics.json"
      echo "$((SECONDS - began)) s  $name  $(grep -E 'TTFT|TPOT' "$out/last.txt" | tr -s ' ' | cut -d ' ' -f 2-8 | tr '\n' ' ')"
    done < <(if [ $pass = a ]; then cases; else cases | tac; fi)
  done
  rm -f "$out/last.txt"
  echo "recorded in $((SECONDS - began)) s, $left left out"
  ls "$runs"/*/run.json >/dev/null
}

fit() {
  candlescope roofline --calibrate "$runs"/* --out "$out" >"$out/calibration.txt"
  # Every figure of every case, kernels by kind among them: what a term can be held against later, without the runs.
  python3 - "$out/calibrated-peaks.json" >"$out/figures.csv" <<'P'
import json, sys

rows = {}
for held in json.load(open(sys.argv[1]))["held_out"]:
    row = rows.setdefault((held["run"].rsplit("/", 1)[-1], held["figure"]), (held, {}))
    row[1][held["left_out"]] = held["predicted_ns"]
print("run,model,batch,prompt,figure,measured_ns,fitted_ns,without_case_ns,without_model_ns")
for (run, figure), (held, of) in sorted(rows.items(), key=lambda row: row[0]):
    predicted = [of.get(left_out, "") for left_out in ("nothing", "case", "model")]
    print(run, held["model"], held["batch"], held["prompt"], figure, held["measured_ns"], *predicted, sep=",")
P
  cat "$out/calibration.md"
}

pack() {
  tar -C "$runs" -c . | gzip -6 | split -b 15M - "$out/runs.tgz."
  ls -l "$out"
}

[ $# -gt 0 ] || set -- record fit
for part in "$@"; do
  echo "== $part"
  "$part"
done
