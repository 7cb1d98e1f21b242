#!/usr/bin/env bash
# `candlescope load` beside AIPerf and GuideLLM on the same server, in turns: medians of each, and their ratios.
#
#   tests/peers/load.sh paced|llama|ours|URL [CLIENTS [ROUNDS]]
#
#   paced   tests/peers/paced_server.py: tokens at known times, so that each tool's own error shows
#   llama   llama.cpp's server with SmolLM2-135M, from Debian (tests/peers/llama-server.sh)
#   ours    the example server with the embedded model
#   URL     any other server that runs
#
# The same prompts, number of tokens, number of clients and endpoint. Not part of `make test`: the peers and what they
# need take some gigabytes, which go into PEERS (target/peers).
#
#   PEERS_RUN="guidellm aiperf"   which of them
#   TOKENS=64 REQUESTS=20         what each tool asks for in a round
#   BUILT=target/debug            where candlescope's programs are
set -euo pipefail
cd "$(dirname "$0")/../.."

which=${1:?"which server: paced, llama, ours, or a URL"} clients=${2:-1} rounds=${3:-5}
export TOKENS=${TOKENS:-64} REQUESTS=${REQUESTS:-20} PEERS_RUN=${PEERS_RUN:-guidellm aiperf}
mkdir -p "${PEERS:-target/peers}"
peers=$(realpath "${PEERS:-target/peers}") built=$(realpath "${BUILT:-target/debug}")
out=$(mktemp -d "$peers/load.XXXXXX")

for peer in $PEERS_RUN; do
    case $peer in
    guidellm) version=0.8.1 ;;
    aiperf) version=0.13.0 ;;
    *) echo "load.sh: PEERS_RUN may have guidellm and aiperf, not $peer" >&2 && exit 1 ;;
    esac
    if ! [ -x "$peers/$peer/bin/$peer" ]; then
        python3 -m venv "$peers/$peer"
        "$peers/$peer/bin/pip" install -q "$peer==$version" >&2
    fi
done

server=
stop() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; }
trap stop EXIT
listening() { # COMMAND: waits until it prints an address
    for _ in $(seq 300); do
        url=$("$@" || true)
        [ -z "$url" ] || return 0
        sleep 0.2
    done
    echo "load.sh: the server does not start; see $out/server.log" >&2
    exit 1
}
case $which in
paced)
    tests/peers/paced_server.py --log "$out/sent.jsonl" >"$out/server.log" 2>&1 &
    server=$!
    listening grep -o -m1 'http://[0-9.:]*' "$out/server.log"
    ;;
llama)
    program=$(PEERS=$peers tests/peers/llama-server.sh)
    model=${MODEL_FILE:-$(tests/fetch-smollm2.sh)}
    port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
    # One thread, so that the clients have the other core. No cache, or whoever sends a prompt second is answered sooner:
    # the tools send the same ones.
    "$program" -m "$model" --alias smollm2 --host 127.0.0.1 --port "$port" --threads 1 --parallel 4 \
        --ctx-size 8192 --no-cache-prompt --cache-ram 0 --metrics >"$out/server.log" 2>&1 &
    server=$!
    listening grep -o -m1 'http://[0-9.:]*' "$out/server.log"
    ;;
ours)
    RAYON_NUM_THREADS=1 "$built/candlescope-server" --listen 127.0.0.1:0 --most-tokens 4096 2>"$out/server.log" &
    server=$!
    listening sed -n 's/^listening on //p' "$out/server.log"
    ;;
*) url=$which ;;
esac
uptime >&2
tests/peers/load_rounds.py --url "$url" --clients "$clients" --rounds "$rounds" --candlescope "$built/candlescope" \
    --peers "$peers" --out "$out"
echo "load average: $(cut -d' ' -f1-3 /proc/loadavg), results in $out" >&2
