#!/bin/sh
# A program of others: crane-serve, an OpenAI-compatible server on candle 0.11 (github.com/lucasjinreal/Crane, MIT), as it is
# and with crane.patch (12 lines). Builds both, asks both the same, holds the answers to one another, and what the run says to
# what the model is. docs/case-studies/others.md shows what comes out.
#
# Usage: run.sh CANDLESCOPE OUT [requests]     needs git, cargo, curl, python3 and OpenSSL's headers; 480 crates, twice
#   CANDLESCOPE  the command
#   OUT          folder for sources, weights, runs
#   requests     also crane-requests.patch: each request with its queue time and tokens
# Variables: CRANE, another place to clone from; JOBS, of cargo; PORT.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
candlescope=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "$2"
out=$(cd "$2" && pwd)
requests=${3:-}
commit=8f0f5cd03540b1678bb0d76ad6110ec6018a0d3b
port=${PORT:-18080}

# The program, as it is and patched. It has no Cargo.lock: both get the same one, with the candle that candlescope knows.
[ -d "$out/plain" ] || {
	git clone -q "${CRANE:-https://github.com/lucasjinreal/Crane}" "$out/plain"
	git -C "$out/plain" checkout -q $commit
	(cd "$out/plain" && cargo generate-lockfile && for crate in candle-core candle-nn candle-transformers; do
		cargo update -q -p $crate --precise 0.11.1
	done)
}
rm -rf "$out/observed/crane-core" "$out/observed/crane-serve"
mkdir -p "$out/observed"
cp -R "$out/plain/." "$out/observed"
for patch in crane.patch ${requests:+crane-requests.patch}; do
	sed "s|CANDLESCOPE/|$root/|" "$here/$patch" | git -C "$out/observed" apply
done
git -C "$out/observed" diff --stat
for what in plain observed; do
	(cd "$out/$what" && cargo build --release -p crane-serve --target-dir "$out/target" ${JOBS:+--jobs "$JOBS"})
	cp "$out/target/release/crane-serve" "$out/crane-serve-$what"
done
[ -e "$out/model/model.safetensors" ] || "$here/weights.py" "$out/model"

ask() { # FIRST LAST TOKENS: a prompt of the words w<FIRST> to w<LAST>
	curl -sS "127.0.0.1:$port/v1/completions" --json "{\"model\": \"m\", \"prompt\": \"$(seq -s ' ' -f 'w%g' "$1" "$2")\",
		\"max_tokens\": $3, \"temperature\": 0, \"repetition_penalty\": 1.0}"
	echo
}
serve() { # WHAT: starts it, asks it seven times, four of them at once, ends it by SIGTERM; the answers are in WHAT.said
	"$out/crane-serve-$1" --cpu -m "$out/model" --model-type qwen25 --host 127.0.0.1 -p "$port" >"$out/$1.log" 2>"$out/$1.err" &
	server=$!
	until curl -sf "127.0.0.1:$port/health" >/dev/null; do
		kill -0 $server || { cat "$out/$1.log" "$out/$1.err" >&2; exit 1; }
		sleep 0.2
	done
	{ ask 1 12 24; ask 100 139 24; ask 500 507 8; } >"$out/$1.json"
	waiting=
	for hundred in 1 2 3 4; do
		ask ${hundred}00 ${hundred}15 24 >"$out/$1.$hundred.json" &
		waiting="$waiting $!"
	done
	wait $waiting
	cat "$out/$1".[1-4].json >>"$out/$1.json"
	kill -TERM $server
	wait $server || [ $? = 143 ] # ended by the signal, as a program without a handler is
	python3 -c '
import json, sys
for line in sys.stdin:
    answer = json.loads(line)
    print(answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"], answer["choices"][0]["text"])
' <"$out/$1.json" >"$out/$1.said"
}
export RAYON_NUM_THREADS="${RAYON_NUM_THREADS:-$(getconf _NPROCESSORS_ONLN)}"
serve plain
rm -rf "$out/runs" "$out/run"
CANDLESCOPE="parquet=$out/runs,sigterm" serve observed
cmp "$out/plain.said" "$out/observed.said"
echo "the answers are the same"
cat "$out/observed.err"
mv "$out/runs"/* "$out/run"
"$candlescope" report "$out/run" >"$out/report.txt"
sed -n '1,60p' "$out/report.txt"
"$here/check.py" "$candlescope" "$out/run" "$out/observed.said" ${requests:+requests}
