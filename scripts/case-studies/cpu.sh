#!/usr/bin/env bash
# The case study on a CPU: the built-in model and SmolLM2, alone and several at once, and a program's own faults. Makes
# docs/case-studies/cpu.md. Half an hour on two cores. Usage: scripts/case-studies/cpu.sh; variables: README.md beside this file, CASES,
# BUDGET of a case (420s), MODEL (a SmolLM2 as GGUF; default: what tests/fetch-smollm2.sh fetches).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/case-studies/cpu}
page=${PAGE:-$root/docs/case-studies}/cpu.md
mkdir -p "$out" "$(dirname "$page")"
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$out/kept}
# What the machine reaches at best, which promises rest on.
ls "$XDG_CACHE_HOME"/candlescope/peaks/*.json >/dev/null 2>&1 || candlescope bench peaks --no-progress >"$out/peaks.txt"
model=${MODEL:-$root/.models/SmolLM2-135M-Instruct.Q4_1.gguf}

studies=() failed=0
study() { # NAME HEADING ARGUMENTS…
  local name=$1 heading=$2
  shift 2
  rm -rf "${out:?}/$name"
  candlescope optimise "$@" --budget "${BUDGET:-420s}" --pairs "${PAIRS:-16}" --no-progress --out "$out/$name" >"$out/$name.txt" 2>&1 ||
    { cat "$out/$name.txt"; failed=1; return 0; }
  studies+=("$heading=$out/$name")
}
hand() { # NAME HEADING RUN TRY [PROMISE]
  # As `profile` does by itself.
  CANDLESCOPE=stacks=499 study "$1" "$2" --run "$3" --try "$4" ${5:+--promise "$5"} --quality kl=10
}

SHORT="--prompt-tokens 32 --max-new-tokens 32 --repeats 3"
PROFILE="candlescope profile --no-progress --out {out}"

# Prompts that begin alike, as with a system prompt, and end with a question each.
python3 - "$out/prompts.jsonl" <<'P'
import json, sys
system = "You answer questions about a library of scientific instruments. Be brief, name the instrument, and say what it measures. " * 3
with open(sys.argv[1], "w") as file:
    for thing in ["light", "heat", "sound", "depth", "weight"]:
        file.write(json.dumps({"prompt": f"{system}What measures {thing}?"}) + "\n")
P

for name in ${CASES:-embedded constant smollm2 batch goodput prefix repeating handed dump scratch allocator half kv8 cache preempted}; do
  case $name in
    embedded) study embedded "The built-in model" embedded --repeats 24 ;;
    smollm2) study smollm2 "SmolLM2 in f32, one request at a time" "$model" --dequantize --dtype f32 $SHORT --quality kl=0.05 ;;
    # candle asks for the number of threads at each product where the variable does not say it, as `profile` does.
    constant) hand constant "\`faults\` without RAYON_NUM_THREADS, against as many as there are" "env -u RAYON_NUM_THREADS faults" "env RAYON_NUM_THREADS=$(nproc) faults" hot_overhead ;;
    prefix) study prefix "SmolLM2, prompts that begin alike" "$model" --dataset "$out/prompts.jsonl" --max-new-tokens 16 --repeats 1 --warmup 1 ;;
    repeating)
      study repeating "SmolLM2 in f32, a text that repeats itself" "$model" --dequantize --dtype f32 --max-new-tokens 64 --repeats 2 --ignore-eos \
        --prompt "one two three four five six seven eight nine ten one two three four five six seven eight nine ten one two three four five"
      ;;
    goodput) study goodput "SmolLM2, requests that keep 200 ms a token" "$model" --dequantize --dtype f32 $SHORT --goal goodput --slo tpot=200ms ;;
    batch) study batch "SmolLM2, as many tokens as possible" "$model" --dequantize --dtype f32 $SHORT --goal throughput ;;
    handed | dump | scratch)
      declare -A finding=([handed]=blocked [dump]=hot_overhead [scratch]=page_faults)
      hand "$name" "\`FAULTS=$name faults\` against \`faults\`" "env RAYON_NUM_THREADS=1 FAULTS=$name faults" "env RAYON_NUM_THREADS=1 faults" "${finding[$name]}"
      ;;
    # The buffer of `scratch` is taken from the system and given back at every step; these variables have glibc keep it.
    allocator)
      hand allocator "\`FAULTS=scratch faults\`, whose freed memory goes back to the system, against glibc keeping it" "env RAYON_NUM_THREADS=1 FAULTS=scratch faults" \
        "env MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_TOP_PAD_=67108864 RAYON_NUM_THREADS=1 FAULTS=scratch faults" page_faults
      ;;
    half) hand half "SmolLM2 in f32, against f16" "$PROFILE --model $model --dequantize --dtype f32 $SHORT" "$PROFILE --model $model --dequantize --dtype f16 $SHORT" ;;
    # Nothing is promised: 8 bits save memory, and a step widens what it reads.
    kv8)
      SLOTS="--model $model --prompt-tokens 64 --max-new-tokens 256 --repeats 1 --ignore-eos --max-num-seqs 1 --max-model-len 512"
      hand kv8 "SmolLM2, keys and values as they are, against 8 bits" "$PROFILE $SLOTS" "$PROFILE $SLOTS --kv-cache-dtype q8"
      ;;
    cache)
      # Long contexts, where the cache is copied at every token, or written in place.
      LONG="--model $model --prompt-tokens 64 --max-new-tokens 256 --repeats 1 --ignore-eos"
      hand cache "\`--engine candle\`, whose cache is copied to grow, against \`--engine instrumented\`" "$PROFILE $LONG --engine candle" "$PROFILE $LONG --engine instrumented"
      ;;
    preempted)
      # Everything on one processor, beside a program that keeps it busy.
      hand preempted "A neighbour on the same processor" "sh -c 'taskset -c 0 sh -c \"while :; do :; done\" & n=\$!; taskset -c 0 $PROFILE --model $model --threads 1 $SHORT; kill \$n'" \
        "taskset -c 0 $PROFILE --model $model --threads 1 $SHORT" preempted
      ;;
    *) echo "no case $name" >&2; exit 2 ;;
  esac
  echo "$name done" >&2
done
python3 "$here/page.py" "$page" "A CPU: SmolLM2, and a program's own faults" \
  "Made by \`scripts/case-studies/cpu.sh\`. Every case is a process start for each run, in turns; what is promised is said before it is tried. \`faults\` is [examples/faults.rs](../../examples/faults.rs), a program with candle-transformers' own Llama." \
  "${studies[@]}" >"$page.new"
# A part of the cases, or a page that lacks one, does not replace the whole one and what people wrote there.
if [ "$failed" = 1 ] || [ -n "${CASES:-}" ]; then
  echo "not all cases were made: see $page.new" >&2
  exit $failed
fi
mv "$page.new" "$page"
echo "$page"
