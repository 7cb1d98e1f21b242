#!/usr/bin/env bash
# The case study on a GPU: SmolLM2's shape and Qwen2.5-0.5B's, for latency and for throughput. Makes docs/case-studies/gpu.md.
# Ten minutes on an H200. Usage: scripts/case-studies/gpu.sh; variables: README.md beside this file, CASES, BUDGET of a case (150s).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/case-studies/gpu}
page=${PAGE:-$root/docs/case-studies}/gpu.md
mkdir -p "$out" "$(dirname "$page")"
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$out/kept}

studies=()
study() { # NAME HEADING ARGUMENTS…
  local name=$1 heading=$2
  shift 2
  rm -rf "${out:?}/$name"
  candlescope-cuda optimise "$@" --device cuda:0 --prompt-tokens 64 --max-new-tokens 64 --repeats 3 --budget "${BUDGET:-150s}" --pairs 10 \
    --no-progress --out "$out/$name"
  studies+=("$heading=$out/$name")
}

for name in ${CASES:-latency throughput quality}; do
  case $name in
    latency) study latency "SmolLM2, one request at a time" config:smollm2-135m ;;
    throughput) study throughput "SmolLM2, as many tokens as possible" config:smollm2-135m --goal throughput ;;
    quality) study quality "Qwen2.5 0.5B, where answers may change a little" config:qwen2.5-0.5b --quality kl=0.05 ;;
    *) echo "no case $name" >&2; exit 2 ;;
  esac
done
python3 "$here/page.py" "$page" "SmolLM2 and Qwen2.5 on a GPU" \
  "Made by \`scripts/case-studies/gpu.sh\`: seeded random weights in bf16, prompts of 64 tokens and 64 new ones. Every case is a process start for each run, in turns; what is promised is said before it is tried." \
  "${studies[@]}" >"$page.new"
mv "$page.new" "$page"
echo "$page"
