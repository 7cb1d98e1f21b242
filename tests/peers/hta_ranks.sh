#!/bin/sh
# Opens the runs of several ranks with HolisticTraceAnalysis, and compares its time of communication with ours, within 1 %:
#
#     tests/peers/hta_ranks.sh FOLDER
#
# HTA is installed as by hta.sh.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
candlescope=${CANDLESCOPE_BINARY:-$root/target/debug/candlescope}
venv=${CANDLESCOPE_HTA_VENV:-$root/target/peers/hta/venv}
if ! "$venv/bin/python" -c 'import hta' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$root/tests/peers/hta-requirements.txt"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$candlescope" export kineto "$1" --out "$work/traces"
"$candlescope" query "SELECT sum(gpu_dur_ns) / 1e3 AS us, count(DISTINCT rank) AS ranks FROM kernels WHERE name LIKE 'nccl%'" "$1" \
    --json >"$work/ours.json"
HTA_DISABLE_NS_ROUNDING=1 "$venv/bin/python" - "$work/traces" "$work/ours.json" <<'P'
import json, sys, warnings

warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis

ours = json.load(open(sys.argv[2]))["rows"][0]
hta = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
print(hta.get_comm_comp_overlap(visualize=False))
kinds, _ = hta.get_gpu_kernel_breakdown(visualize=False)
theirs = float(kinds[kinds.kernel_type == "COMMUNICATION"]["sum"].iloc[0])
print(f"communication: HTA {theirs:.0f} us, ours {ours['us']:.0f} us, ratio {theirs / ours['us']:.4f}; ranks {len(hta.t.traces)} and {ours['ranks']}")
sys.exit(abs(theirs / ours["us"] - 1) > 0.01 or len(hta.t.traces) != ours["ranks"])
P
