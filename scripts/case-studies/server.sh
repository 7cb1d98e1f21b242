#!/usr/bin/env bash
# The case study of a server under load: requests at once, prompts in pieces, prefix reuse, keys and values in 8 bits, slots by a share of
# the memory. Makes docs/case-studies/server.md. Twenty minutes on two cores. Usage: scripts/case-studies/server.sh; variables: README.md
# beside this file, MODEL (a SmolLM2 as GGUF), SERVER (options for every server: --device cuda:0 …), CLIENTS (4), REQUESTS of a load (24),
# ROUNDS of all settings (3), SHARE of the memory (0.8; more than is in use).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ -z "${BIN:-}" ] || export PATH=$BIN:$PATH
out=${OUT:-$root/target/case-studies/server}
page=${PAGE:-$root/docs/case-studies}/server.md
mkdir -p "$out" "$(dirname "$page")"
model=${MODEL:-$root/.models/SmolLM2-135M-Instruct.Q4_1.gguf}
port=${PORT:-8377}

# Prompts that begin alike, as with a system prompt, and end with one of many questions.
python3 - "$out/prompts.jsonl" <<'P'
import json, sys
system = "You answer questions about a library of scientific instruments. Be brief, name the instrument, and say what it measures. " * 4
things = ["light", "heat", "sound", "depth", "weight", "speed", "rain", "wind", "time", "height", "salt", "dust"]
with open(sys.argv[1], "w") as file:
    for n in range(96):
        file.write(json.dumps({"prompt": f"{system}Question {n}: what measures {things[n % len(things)]}?", "max_tokens": 24}) + "\n")
P

server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null' EXIT
if curl -s "http://127.0.0.1:$port/" >/dev/null; then
  echo "something listens at port $port: PORT=… names another" >&2
  exit 1
fi
load() { # NAME ROUND OPTIONS…
  local name=$1 round=$2
  shift 2
  rm -rf "$out/$name-$round"
  # shellcheck disable=SC2086
  candlescope-server --model "$model" --listen "127.0.0.1:$port" ${SERVER:-} "$@" >"$out/$name-$round.log" 2>&1 &
  server=$!
  for _ in $(seq 200); do
    curl -sf "http://127.0.0.1:$port/healthz" >/dev/null && break
    sleep 0.1
  done
  # Another server may answer at this port.
  kill -0 "$server" 2>/dev/null && curl -sf "http://127.0.0.1:$port/healthz" >/dev/null || { cat "$out/$name-$round.log"; exit 1; }
  candlescope load "http://127.0.0.1:$port" --concurrency "${CLIENTS:-4}" --requests "${REQUESTS:-24}" --dataset "$out/prompts.jsonl" \
    --ignore-eos --seed "$round" --out "$out/$name-$round" >"$out/$name-$round.txt" 2>&1 || { cat "$out/$name-$round.txt"; exit 1; }
  kill -INT "$server"
  wait "$server" || true
  server=
}

SLOTS="--max-model-len 512 --max-num-seqs"
# 94 MB a slot, 12 GB: without a share, all or none.
FITTING="--max-model-len 2048 --max-num-seqs 128 --prompt-piece 512 --gpu-memory-utilization ${SHARE:-0.8}"
settings=(
  "one=one request after the other="
  "slots-1=1 slot, prompts whole=$SLOTS 1 --prompt-piece 512 --no-prefix-reuse"
  "slots-2=2 slots, prompts whole=$SLOTS 2 --prompt-piece 512 --no-prefix-reuse"
  "slots-4=4 slots, prompts whole=$SLOTS 4 --prompt-piece 512 --no-prefix-reuse"
  "pieces=4 slots, prompts in pieces of 32=$SLOTS 4 --prompt-piece 32 --no-prefix-reuse"
  "reuse=4 slots, prefixes reused=$SLOTS 4 --prompt-piece 512"
  "both=4 slots, pieces of 32, prefixes reused=$SLOTS 4 --prompt-piece 32"
  "q8=4 slots, prefixes reused, keys and values in 8 bits=$SLOTS 4 --prompt-piece 512 --kv-cache-dtype q8"
  "share=as many of 128 slots of 2048 tokens as fit ${SHARE:-0.8} of the memory, prefixes reused=$FITTING"
  "share-q8=the same share, prefixes reused, keys and values in 8 bits=$FITTING --kv-cache-dtype q8"
)
# In turns, so that a machine that changes does it to all.
for round in $(seq "${ROUNDS:-3}"); do
  for setting in "${settings[@]}"; do
    IFS='=' read -r name _ options <<<"$setting"
    # shellcheck disable=SC2086
    load "$name" "$round" $options
    echo "$name $round done" >&2
  done
done
python3 "$here/server.py" "$page" "$out" "${ROUNDS:-3}" "${settings[@]}" >"$page.new"
mv "$page.new" "$page"
echo "$page"
