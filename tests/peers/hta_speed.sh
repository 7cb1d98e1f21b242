#!/bin/sh
# How long `candlescope analyze` and HolisticTraceAnalysis take for the same run, in turns:
#
#     tests/peers/hta_speed.sh RUN [ROUNDS]
#
# RUN is for example what `cargo run -p candlescope-exporters --example scale_run -- RUN 0.2` writes. HTA reads it as exported for it
# (the export is not timed) and is asked for everything but sequences and the critical path; `analyze` answers all of that, these two,
# and what to change. The tools are installed as `hta.sh` does. CANDLESCOPE_BINARY, CANDLESCOPE_HTA_VENV as there.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
place="$root/target/peers/hta"
candlescope=${CANDLESCOPE_BINARY:-$root/target/debug/candlescope}
venv=${CANDLESCOPE_HTA_VENV:-$place/venv}
run=${1:?name a run}
rounds=${2:-3}

if ! [ -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import hta' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement "$root/tests/peers/hta-requirements.txt"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/trace"
"$candlescope" export kineto "$run" --out "$work/trace/rank0.json.gz" >/dev/null
for round in $(seq "$rounds"); do
    "$venv/bin/python" - "$candlescope" "$run" >>"$work/ours" <<'PYTHON'
import resource, subprocess, sys, time
started = time.monotonic()
command = [sys.argv[1], "analyze", sys.argv[2], "--json", "--top", "0", "--with-warmup"]
subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
wall, used = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{wall:.3f} {used.ru_utime + used.ru_stime:.3f} {used.ru_maxrss / 1024:.0f}")
PYTHON
    HTA_DISABLE_NS_ROUNDING=1 "$venv/bin/python" "$root/tests/peers/hta_speed.py" "$work/trace" >>"$work/theirs"
    echo "round $round: candlescope $(tail -1 "$work/ours") (seconds, of CPU, MB), HTA $(tail -1 "$work/theirs")"
done
"$venv/bin/python" - "$work/ours" "$work/theirs" <<'PYTHON'
import json, statistics, sys
ours = [[float(value) for value in line.split()] for line in open(sys.argv[1])]
theirs = [json.loads(line) for line in open(sys.argv[2])]
# CPU as well: on a machine that others use, it is what can be compared.
for what, at, key in [("wall", 0, "total"), ("CPU", 1, "cpu")]:
    own, other = (statistics.median(one) for one in ([row[at] for row in ours], [row[key] for row in theirs]))
    print(f"{what}, median: candlescope {own:.2f} s, HTA {other:.2f} s: {other / own:.1f} times")
PYTHON
