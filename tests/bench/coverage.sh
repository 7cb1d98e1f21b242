#!/usr/bin/env bash
# Do medians lie in the intervals that a suite claims for them? Repeats one suite, and counts.
# Usage: tests/bench/coverage.sh DIR [ARGUMENTS OF bench latency]       (default: the embedded model)
#   BIN          folder with `candlescope` (default: the one on the PATH)
#   REPETITIONS  20 unless told otherwise; what DIR holds already is kept and counted
# Each repetition is a study of six process starts or more: fewer have no interval. Writes DIR/N/* and DIR/coverage.json.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
dir=${1:?"usage: tests/bench/coverage.sh DIR [ARGUMENTS OF bench latency]"}
shift
[ $# -gt 0 ] || set -- --model embedded --prompt-tokens 32 --output-tokens 64
mkdir -p "$dir"
for n in $(seq "${REPETITIONS:-20}"); do
  [ -e "$dir/$n/baseline_metrics.json" ] ||
    candlescope bench latency "$@" --profiled 0 --no-progress --out "$dir/$n" | tail -n +1 | head -1
done
python3 "$root/tests/bench/coverage.py" "$dir"
