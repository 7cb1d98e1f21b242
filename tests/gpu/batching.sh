#!/usr/bin/env bash
# The example server with continuous batching on a CUDA device, under load of more and more clients, in turns: without candlescope
# (`bare`), observed, without graphs (`eager`), and those that answer one request after the other, by one thread (`one`) or four (`workers`). Fifteen minutes on an H200; seven with
# ROUNDS=3 SECONDS_EACH=4 CLIENTS="1 8 64".
# Usage: tests/gpu/batching.sh
#   BIN      folder with `candlescope-server` and `load`, built with --features candlescope-server/cuda, and `candlescope` or `candlescope-cuda`
#   OUT      folder for results (default: target/bench/batching)
#   MODEL    config:smollm2-135m unless told otherwise
#   ROUNDS   turns of each (3); SECONDS_EACH of a turn (5), OTHER_SECONDS of the other client in it (2; 0 leaves it out)
#   CLIENTS  ("1 8 32 64"); WAYS ("bare observed one"; also eager, workers)
# All servers are there from the beginning, and one at a time has work. The client is `candlescope load`, the other one the example's
# own `load`; `guidellm`, if it is on the PATH and the model has a tokenizer, is a third, for the last number of clients. Prompts are 64
# numbers of tokens, the same each time, so no server reuses what it holds of one.
# Prints, for each number of clients and each server: tokens a second, TTFT and ITL (median and 99th percentile, over the requests of
# all turns), joules of the device for an output token, failures, and the other client's tokens a second; then ratios with their
# intervals, `observed` ÷ `bare` among them; then the report of the observed server's run, with its accounts.
# Writes $OUT/turns.jsonl, $OUT/summary.txt and $OUT/account.txt. Fails if a load does, or a request.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/gpu
bin=${BIN:-$root/target/release}
out=${OUT:-$root/target/bench/batching}
model=${MODEL:-config:smollm2-135m} rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-5} other=${OTHER_SECONDS:-2}
read -ra clients <<<"${CLIENTS:-1 8 32 64}"
read -ra ways <<<"${WAYS:-bare observed one}"
cs=$bin/candlescope
[ -x "$cs" ] || cs=$bin/candlescope-cuda
scratch=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; rm -rf "$scratch"' EXIT
rm -rf "$out/load" "$out/run"
mkdir -p "$out/load"
export RAYON_NUM_THREADS=1
: >"$out/turns.jsonl"
failed=0
slots=(--max-num-seqs 64 --max-model-len 1024 --no-prefix-reuse)

start() { # WAY: waits until it listens
  local log=$scratch/$1.log options=()
  case $1 in
    bare) options=(--unobserved "${slots[@]}" --cuda-graph) ;;
    observed) options=("${slots[@]}" --cuda-graph --parquet "$out/run") ;;
    eager) options=(--unobserved "${slots[@]}") ;;
    one) options=(--unobserved) ;;
    workers) options=(--unobserved --workers 4) ;;
    *) echo "batching.sh: WAYS may have bare, observed, eager, one and workers, not $1" >&2 && exit 1 ;;
  esac
  "$bin/candlescope-server" --model "$model" --device cuda:0 --listen 127.0.0.1:0 --queue 256 "${options[@]}" 2>"$log" &
  pids+=($!)
  until grep -q "^listening on" "$log" 2>/dev/null; do
    kill -0 $! 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.2
  done
  sed -n "s/^listening on //p" "$log" >"$scratch/$1.url"
}

joules() { "$here/device_counter.py" energy || true; }

turn() { # ROUND WAY CLIENTS
  local url name=$1-$2-$3 before after
  url=$(cat "$scratch/$2.url")
  before=$(joules)
  if ! "$cs" load "$url" --endpoint completions --concurrency "$3" --duration "${seconds}s" --warmup 1s --max-tokens 64 --ignore-eos \
    --prompt x --body "$body" --seed 1 --json --out "$out/load/$name" >/dev/null 2>"$scratch/load.txt"; then
    echo "failed: round $1, $2, $3 clients: $(tail -n 1 "$scratch/load.txt")"
    failed=1
    return
  fi
  after=$(joules)
  echo null >"$scratch/other.json"
  if [ "$other" != 0 ]; then
    "$bin/load" --server "$url" --seconds "$other" --clients "$3" --max-tokens 64 --prompt-tokens 64 >"$scratch/other.json" || failed=1
  fi
  python3 - "$out/load/$name/load_test_results.json" "$scratch/other.json" "$1" "$2" "$3" "$before" "$after" <<'P' >>"$out/turns.jsonl"
import json, sys
path, other, round_, way, clients, before, after = sys.argv[1:]
found = json.load(open(path))
other = json.load(open(other))
figures = found["stages"][0]["figures"]
tokens = sum(r["output_tokens"] or 0 for r in found["requests"])
joules = float(after) - float(before) if before and after else None
print(json.dumps({
    "round": int(round_), "way": way, "clients": int(clients),
    "tokens_per_s": figures["output_tokens_per_s"], "requests_per_s": figures["requests_per_s"],
    "failed": figures["failed"], "measured": figures["measured"],
    "millijoules_per_token": 1e3 * joules / tokens if joules and tokens else None,
    "other_tokens_per_s": other and other["tokens_per_second"], "other_failed": other and other["failed"],
}))
P
}

# The words of a vocabulary are not known here; the first few hundred numbers are in any.
body=$(python3 -c 'import json; print(json.dumps({"prompt": [3 + 7 * i % 200 for i in range(64)]}))')
for way in "${ways[@]}"; do start "$way"; done
for way in "${ways[@]}"; do
  # Every number of slots that is used has its graph before anything is measured.
  for n in "${clients[@]}"; do
    "$bin/load" --server "$(cat "$scratch/$way.url")" --seconds 1 --clients "$n" --max-tokens 64 --prompt-tokens 64 >/dev/null || failed=1
  done
done
for round in $(seq "$rounds"); do
  for n in "${clients[@]}"; do
    # Whoever is first changes with each round.
    for at in $(seq 0 $((${#ways[@]} - 1))); do turn "$round" "${ways[(at + round) % ${#ways[@]}]}" "$n"; done
  done
done

python3 - "$out" <<'P' | tee "$out/summary.txt"
import collections, json, math, pathlib, statistics, sys
out = pathlib.Path(sys.argv[1])
turns = [json.loads(line) for line in open(out / "turns.jsonl")]
by = collections.defaultdict(list)
for turn in turns:
    by[turn["clients"], turn["way"]].append(turn)


def pooled(n, way):
    """TTFT and gaps of the measured requests of all turns, in ms."""
    ttft, gaps = [], []
    for turn in by[n, way]:
        found = json.load(open(out / "load" / f"{turn['round']}-{way}-{n}" / "load_test_results.json"))
        for r in found["requests"]:
            times = r["token_ns"]
            if r["part"] == "measured" and "failure" not in r and times:
                # Of tokens, times count from the start of their request.
                ttft.append(times[0] / 1e6)
                gaps += [(b - a) / 1e6 for a, b in zip(times, times[1:])]
    return ttft, gaps


def at(values, share):
    """The value that so many lie at or below; of too few nothing is said."""
    values = sorted(values)
    few = len(values) < math.ceil(1 / (1 - share))
    return "-" if few else "%.2f" % values[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


def median(turns, key):
    known = [turn[key] for turn in turns if turn[key] is not None]
    return statistics.median(known) if known else None


def shown(value, form):
    return "-" if value is None else form % value


for (n, way), of in sorted(by.items()):
    ttft, gaps = pooled(n, way)
    tokens, other, millijoules = (median(of, key) for key in ("tokens_per_s", "other_tokens_per_s", "millijoules_per_token"))
    failed = sum(sum(turn["failed"].values()) for turn in of)
    print(f"{n:3} clients, {way:8} {shown(tokens, '%7.0f')} tokens/s; TTFT {at(ttft, 0.5)} ms, p99 {at(ttft, 0.99)}; "
          f"ITL {at(gaps, 0.5)} ms, p99 {at(gaps, 0.99)}; {shown(millijoules, '%.1f')} mJ a token; "
          f"{failed} of {sum(turn['measured'] for turn in of)} failed; other client {shown(other, '%.0f')} tokens/s")
for key, name in (("tokens_per_s", "tokens"), ("other_tokens_per_s", "other")):
    for n in dict.fromkeys(turn["clients"] for turn in turns):
        lines = [f"{turn['round']} {turn['way']} {turn[key]}\n" for turn in turns if turn["clients"] == n and turn[key]]
        (out / f"{name}-{n}.txt").write_text("".join(lines))
sys.exit(not turns or any(turn["failed"] or turn["other_failed"] for turn in turns))
P
[ "${PIPESTATUS[0]}" = 0 ] || failed=1
for name in tokens other; do
  for n in "${clients[@]}"; do
    if [ -s "$out/$name-$n.txt" ]; then
      echo "tokens a second, $n clients$([ $name = tokens ] || echo ", the other client")"
      "$here/ratios.py" "${ways[0]}" "$out/$name-$n.txt" | tail -n +2
    fi
  done
done | tee -a "$out/summary.txt"

# A third client, with texts: it needs the model's tokenizer.
case $model in
  config:* | embedded) ;;
  *)
    if command -v guidellm >/dev/null; then
      url=$(cat "$scratch/${ways[0]}.url") n=${clients[-1]}
      python3 -c 'import json; [print(json.dumps({"prompt": f"Tell a story about the number {i}, in many words."})) for i in range(400)]' \
        >"$scratch/prompts.jsonl"
      backend=$(python3 - "$url" <<'P'
import json, sys, urllib.request
model = json.load(urllib.request.urlopen(sys.argv[1] + "/v1/models"))["data"][0]["id"]
print(json.dumps({"kind": "openai_http", "target": sys.argv[1], "model": model, "request_format": "/v1/completions",
                  "validate_backend": False, "max_tokens": 64, "extras": {"body": {"temperature": 0, "ignore_eos": True}}}))
P
      )
      guidellm run --backend "$backend" --profile "kind=concurrent,streams=$n" --constraint "kind=max_requests,count=400" \
        --data "kind=json_file,path=$scratch/prompts.jsonl" --output "kind=json,path=$out/guidellm.json" --disable-console \
        >"$out/guidellm.txt" 2>&1 || { echo "guidellm failed: $(tail -n 1 "$out/guidellm.txt")"; failed=1; }
      echo "guidellm, $n clients, ${ways[0]}: $(sed -n 's/.*completed | //p' "$out/guidellm.txt" | tail -n 1)"
    fi
    ;;
esac

kill -TERM "${pids[@]}"
wait "${pids[@]}"
pids=()
for way in "${ways[@]}"; do echo "$way: $(tail -n 1 "$scratch/$way.log")"; done
if [ -d "$out/run" ]; then
  {
    "$cs" report "$out/run"
    # What the counter of the device says, by whom it was used for: the parts add up to it.
    "$cs" query "SELECT * FROM device_accounts" "$out/run"
  } >"$out/account.txt" 2>&1 || failed=1
  grep -iE "allocated ÷ used|energy" "$out/account.txt" | head
fi
exit $failed
