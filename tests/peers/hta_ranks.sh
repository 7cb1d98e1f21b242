#!/bin/sh
# Opens the runs of several ranks with HolisticTraceAnalysis, and compares its time of NCCL's kernels on each rank with ours, within 0.1 %:
#
#     tests/peers/hta_ranks.sh FOLDER
#     tests/peers/hta_ranks.sh RUN --by-thread
#
# HTA is installed as by hta.sh, unless CANDLESCOPE_HTA_PYTHON names a Python that has it. Its sums by name are compared: its breakdown
# by type leaves out the fractions of a microsecond of each interval, which is some tenths of a percent of short kernels.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
candlescope=${CANDLESCOPE_BINARY:-$root/target/debug/candlescope}
venv=${CANDLESCOPE_HTA_VENV:-$root/target/peers/hta/venv}
python=${CANDLESCOPE_HTA_PYTHON:-$venv/bin/python}
if ! "$python" -c 'import hta' 2>/dev/null; then
    python3 -m venv "$venv"
    python=$venv/bin/python
    "$python" -m pip install --quiet --disable-pip-version-check --requirement "$root/tests/peers/hta-requirements.txt"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$candlescope" export kineto "$1" ${2:-} --out "$work/traces"
"$candlescope" analyze "$1" ${2:-} --json >"$work/ranks.json"
of=rank
[ "${2:-}" != --by-thread ] || of=thread
"$candlescope" query "SELECT s.$of AS of, sum(k.gpu_dur_ns) / 1e3 AS us FROM kernels k JOIN steps s ON s.run = k.run AND s.step = k.step
    WHERE k.name LIKE 'nccl%' GROUP BY s.$of" "$1" --json >"$work/ours.json"
HTA_DISABLE_NS_ROUNDING=1 "$python" - "$work/traces" "$work/ours.json" "$work/ranks.json" <<'P'
import json, sys, warnings

warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis

# A thread's number is that of its device.
number = {of: rank["rank"] for rank in json.load(open(sys.argv[3]))["ranks"] for of in (rank["rank"], rank["thread"])}
ours = {number[row["of"]]: row["us"] for row in json.load(open(sys.argv[2]))["rows"]}
hta = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
print(hta.get_comm_comp_overlap(visualize=False))
_, names = hta.get_gpu_kernel_breakdown(visualize=False, num_kernels=1_000_000, duration_ratio=1.0)
theirs = names[names["name"].str.startswith("nccl")].groupby("rank")["sum (us)"].sum().to_dict()
for rank in sorted({*ours, *theirs}):
    print(f"rank {rank}: NCCL's kernels by HTA {theirs.get(rank, 0):.1f} us, ours {ours.get(rank, 0):.1f} us")
same = ours and ours.keys() == theirs.keys() and all(abs(theirs[rank] / us - 1) <= 1e-3 for rank, us in ours.items())
print(f"ranks {len(hta.t.traces)} and {len(ours)}: {'the same' if same else 'DIFFERENT'}")
sys.exit(not same or len(hta.t.traces) != len(ours))
P
