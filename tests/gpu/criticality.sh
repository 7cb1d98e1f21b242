#!/usr/bin/env bash
# Criticality by experiment on a GPU, beside what a replay says: a model that waits for its launches, and one that waits for its
# device. Three minutes on an H200. Usage: tests/gpu/criticality.sh
#   BIN      folder with `candlescope-cuda` (cargo build -p candlescope-cli --features cuda, renamed)
#   OUT      folder for results (default: target/bench/criticality)
#   CASES    of: eager device (default: both)
#   PAIRS    pairs of each path and side (default 80)
# Prints the tables; fails if a case cannot be run, or is not what it must be: in `eager` the host's time is critical and kernels
# are not, in `device` it is the other way round.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/bench/criticality}
mkdir -p "$out"
failed=0

case_of() { # NAME PATHS ARGUMENTS…
  local name=$1 paths=$2 perturb=""
  shift 2
  for path in $paths; do perturb+="${perturb:+,}path=$path:+${SHARE:-50}%"; done
  rm -rf "$out/$name"
  candlescope-cuda profile "$@" --device cuda:0 --ignore-eos --no-progress --stacks=off --cupti=8/64 --overhead-probe 5 \
    --perturb "$perturb" --perturb-pairs "${PAIRS:-80}" --perturb-budget 50% --out "$out/$name" >"$out/$name.txt" 2>&1 || failed=1
  echo "== $name: $*"
  candlescope-cuda analyze "$out/$name" --json >"$out/$name.json"
  candlescope-cuda analyze "$out/$name" | sed -n '/Criticality/,/^$/p'; candlescope-cuda analyze "$out/$name" | grep 'unobserved'
}

check() { # NAME SIDE LOW HIGH: every path's criticality on a side lies there, and is known to ±0.5
  python3 - "$out/$1.json" "$2" "$3" "$4" <<'P' || { echo "$1: criticality on the $2 is not from $3 to $4"; failed=1; }
import json, sys
path, side, low, high = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
rows = [r for r in json.load(open(path))["runs"][0]["sensitivity"] if r["side"] == side]
wrong = [r for r in rows if not low <= r["criticality"] <= high or r["interval"][1] - r["interval"][0] > 1]
sys.exit(len(rows) != 2 or bool(wrong))
P
}

SHORT="--prompt-tokens 64 --max-new-tokens 64 --repeats 3"
for name in ${CASES:-eager device}; do
  case $name in
    eager)
      case_of eager "self_attn mlp" --model config:smollm2-135m --dtype bf16 $SHORT
      check eager host 0.9 1.1
      check eager device -0.1 0.1
      ;;
    device)
      case_of device "self_attn mlp" --model config:llama-3-8b --dtype bf16 --batch 64 --prompt-tokens 1024 --max-new-tokens 128 --repeats 2
      check device device 0.9 1.1
      check device host -0.1 0.1
      ;;
    *) echo "no case $name"; failed=1 ;;
  esac
done
exit $failed
