#!/bin/sh
# The screen of `candlescope monitor` beside a model that answers, as SVG: what a terminal of its size shows at the end.
# Usage: scripts/pictures/monitor.sh PROGRAMS MODEL PICTURE
set -eu
programs=$1 model=$2 picture=$3
work=$(mktemp -d)
# A runtime directory of its own: no other program is in the picture.
export XDG_RUNTIME_DIR="$work" XDG_CACHE_HOME="$work"
RAYON_NUM_THREADS=1 "$programs/candlescope" profile --no-progress --model "$model" --prompt "The capital of France is" \
  --max-new-tokens 48 --ignore-eos --repeats 1000 --prometheus 0 --out "$work/run" >/dev/null 2>&1 &
program=$!
trap 'kill $program 2>/dev/null; wait $program 2>/dev/null; rm -rf "$work"' EXIT
until [ -n "$(ls "$work/candlescope/running" 2>/dev/null)" ]; do sleep 0.2; done
"$programs/candlescope" monitor --plain --duration 60s --period 500ms --svg "$picture" --csv "$work/rows.csv" >/dev/null
echo "$picture: $(($(stat -c %s "$picture") / 1000)) kB"
