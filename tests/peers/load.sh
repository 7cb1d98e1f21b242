#!/usr/bin/env bash
# `candlescope load` beside GuideLLM on the same server: alternations of both, medians of each, and their ratios.
#
#   tests/peers/load.sh [ALTERNATIONS] [CLIENTS]
#
# Without URL, the example server with the embedded model is started. Not part of `make test`: GuideLLM and what it
# needs take some gigabytes, which go into PEERS (target/peers). The same prompts, the same number of tokens, the same
# endpoint; GuideLLM's "ITL" is what candlescope calls TPOT.
#
#   URL=http://localhost:8080 MODEL=name   another server
#   TOKENS=64 REQUESTS=40 EXTRA='{"ignore_eos": true}'   what is asked for
#   BUILT=target/debug   where the programs are
set -euo pipefail
cd "$(dirname "$0")/../.."

alternations=${1:-5} clients=${2:-2}
tokens=${TOKENS:-64} requests=${REQUESTS:-40} extra=${EXTRA:-'{"ignore_eos": true}'}
peers=${PEERS:-target/peers} built=${BUILT:-target/debug}
version=0.8.1
mkdir -p "$peers"
out=$(mktemp -d "$peers/load.XXXXXX")

if ! "$peers/guidellm/bin/guidellm" --version >/dev/null 2>&1; then
    python3 -m venv "$peers/guidellm"
    "$peers/guidellm/bin/pip" install -q "guidellm==$version" >&2
fi
guidellm=$(realpath "$peers/guidellm/bin/guidellm")

server=
stop() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; }
trap stop EXIT
if [ -z "${URL:-}" ]; then
    RAYON_NUM_THREADS=1 "$built/candlescope-server" --listen 127.0.0.1:0 --most-tokens 4096 2>"$out/server.log" &
    server=$!
    for _ in $(seq 300); do
        URL=$(sed -n 's/^listening on //p' "$out/server.log")
        [ -n "$URL" ] && break
        sleep 0.2
    done
fi
model=${MODEL:-$(python3 -c 'import json, sys, urllib.request as u; print(json.load(u.urlopen(sys.argv[1] + "/v1/models"))["data"][0]["id"])' "$URL")}

python3 - "$out/prompts.jsonl" <<'PY'
import json, sys
with open(sys.argv[1], "w") as file:
    for i in range(1000):
        file.write(json.dumps({"prompt": f"Number {i}: say what you know about the water below the bridge {i * 7 % 997}."}) + "\n")
PY

# GuideLLM's own extra fields of a request are a JSON object within its list of settings.
backend=$(python3 - "$URL" "$model" "$tokens" "$extra" <<'PY'
import json, sys
url, model, tokens, extra = sys.argv[1:]
print(json.dumps({"kind": "openai_http", "target": url, "model": model, "request_format": "/v1/completions",
                  "validate_backend": False, "max_tokens": int(tokens), "extras": {"body": {"temperature": 0, **json.loads(extra)}}}))
PY
)

ours() {
    "$built/candlescope" load "$URL" --endpoint completions --model "$model" --dataset "$out/prompts.jsonl" \
        --concurrency "$clients" --requests "$requests" --max-tokens "$tokens" --body "$extra" \
        --out "$out/ours-$1" --json >"$out/ours-$1.json"
}
theirs() {
    "$guidellm" run --backend "$backend" --profile "kind=concurrent,streams=$clients" \
        --constraint "kind=max_requests,count=$requests" --data "kind=json_file,path=$out/prompts.jsonl" \
        --output "kind=json,path=$out/theirs-$1.json" --disable-console >"$out/theirs-$1.log" 2>&1
}

for n in $(seq "$alternations"); do
    # Whoever is first changes with each round.
    if [ $((n % 2)) = 1 ]; then ours "$n"; theirs "$n"; else theirs "$n"; ours "$n"; fi
    echo "round $n of $alternations" >&2
done

python3 - "$out" "$alternations" "$version" <<'PY'
import json, statistics as s, sys
out, n, version = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rows = {}
for i in range(1, n + 1):
    ours = json.load(open(f"{out}/ours-{i}.json"))["stages"][0]["figures"]
    theirs = json.load(open(f"{out}/theirs-{i}.json"))["benchmarks"][0]
    requests = [r for r in theirs["requests"]["successful"]]
    per = lambda key: s.median(r[key] for r in requests if r[key] is not None)
    pairs = {
        "TTFT, ms": (ours["ttft_ns"]["median"] / 1e6, per("time_to_first_token_ms")),
        "TPOT, ms": (ours["tpot_ns"]["median"] / 1e6, per("inter_token_latency_ms")),
        "E2E, ms": (ours["e2e_ns"]["median"] / 1e6, per("request_latency") * 1e3),
        "output tokens": (ours["output_tokens"]["median"], per("output_tokens")),
    }
    for name, pair in pairs.items():
        rows.setdefault(name, []).append(pair)
print(f"medians of {n} alternations, GuideLLM {version}")
print("| figure | candlescope | GuideLLM | ratio of the medians | ratios of the rounds |\n|---|---|---|---|---|")
for name, pairs in rows.items():
    a, b = (s.median(x) for x in zip(*pairs))
    ratios = sorted(x / y for x, y in pairs)
    print(f"| {name} | {a:.3f} | {b:.3f} | {a / b:.3f} | {ratios[0]:.3f} – {ratios[-1]:.3f} |")
PY
