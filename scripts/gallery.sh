#!/usr/bin/env bash
# Makes docs/gallery again: a run, its report and timeline, a study, a comparison, from the built-in model on this machine, and the
# report and timeline of a run that was recorded on a GPU (cli/tests/recorded/gpu). Three minutes on a machine at rest; on a busy one
# the pictures show that. The sentences of docs/gallery/README.md are made by a test (UPDATE_DOCS=1).
# CANDLESCOPE names the program, if it is not to be built.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${CANDLESCOPE:-}" ]; then
  cargo build -q -p candlescope-cli
  CANDLESCOPE=target/debug/candlescope
fi
out=docs/gallery
rm -rf "$out/cpu" "$out/gpu" "$out/study" "$out/comparison"
mkdir -p "$out/gpu" "$out/comparison"
# A peak or a promise that is kept on this machine would be in what is shown.
XDG_CACHE_HOME=$(mktemp -d)
export XDG_CACHE_HOME
work=$(mktemp -d)
trap 'rm -rf "$work" "$XDG_CACHE_HOME"' EXIT

profile() { "$CANDLESCOPE" profile --model embedded --max-new-tokens 48 --repeats 5 --no-progress "$@"; }
profile --out "$out/cpu" >/dev/null
trace() { # RUN FILE: gzip'd, as ui.perfetto.dev opens it, too
  "$CANDLESCOPE" export perfetto "$1" --out "$work/trace" >/dev/null
  gzip -9nc "$work/trace" > "$2"
}
trace "$out/cpu" "$out/cpu/trace.pftrace.gz"

gpu=cli/tests/recorded/gpu/unmodified
"$CANDLESCOPE" report "$gpu" --out "$work/report" >/dev/null
cp "$work/report/report.html" "$work/report/metrics.json" "$out/gpu/"
trace "$gpu" "$out/gpu/trace.pftrace.gz"

# Batches and lengths of prompts as well, so that its questions have answers; recorded runs of its cases would be megabytes.
"$CANDLESCOPE" bench suite --model embedded --runs 12 --processes 3 --profiled 0 --batches 1,4,16 --prompts 16,64,256 --outputs 16 \
  --no-progress --out "$out/study" >/dev/null

# What do 16 bits cost on this CPU?
program="$CANDLESCOPE profile --model embedded --max-new-tokens 48 --repeats 3 --no-progress --out {out}"
"$CANDLESCOPE" compare --no-progress --pairs 12 --out "$work/compare" --html "$out/comparison/compare.html" \
  --allow options,dtype,tokens --run "$program --dtype f32" "$program --dtype bf16" > "$work/said" || [ $? -lt 3 ]
sed "s|$work|results|" "$work/said" > "$out/comparison/compare.txt"
# Empty tables, and the report in other forms. The study keeps its journal: `candlescope compare` reads it.
rm -rf "$out"/cpu/*.md "$out/cpu/perturbations" "$out/cpu/kernels"
du -sk "$out"/*
