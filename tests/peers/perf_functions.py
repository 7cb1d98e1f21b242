#!/usr/bin/env python3
"""Holds sampled functions against those of `perf record`, of one and the same run.

Usage: tests/peers/perf_functions.py CANDLESCOPE OUT [WORD…]

Runs `perf record -F 499 -g CANDLESCOPE profile WORD… --out OUT/run` (so both sample the same threads at the same time), takes
from both what was on a CPU between the first measured step's begin and the last one's end, and compares each function's share
of its own time: the ten largest of either, with the error of counting samples. Shared libraries are taken whole, because who
has their debug information knows more names; time in the kernel is that of the function that called it. Needs Linux's `perf` and Python's `duckdb`.
Fails if a share differs by more than four standard errors and 3 points.
"""

import math
import pathlib
import re
import subprocess
import sys

import duckdb

program, out, words = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
out.mkdir(parents=True, exist_ok=True)
run, data = out / "run", out / "perf.data"
subprocess.run(["rm", "-rf", str(run)], check=True)
record = ["perf", "record", "-q", "-F", "499", "-e", "cpu-clock", "-g", "-k", "CLOCK_REALTIME", "-o", str(data)]
subprocess.run([*record, program, "profile", *words, "--no-progress", "--out", str(run)], check=True, stdout=subprocess.DEVNULL)

base = f"read_parquet('{run}/%s/*.parquet')"
begin, end = duckdb.sql(
    f"SELECT min(host_start_ns), max(host_start_ns + host_dur_ns) FROM {base % 'steps'} WHERE phase IS NOT NULL"
).fetchall()[0]


def plain(name):
    """A function without arguments of generics and hashes, so that different demanglers agree."""
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    name = re.sub(r"@@?[A-Z].*$", "", name)
    kept, depth = [], 0
    if name.startswith("<"):
        name = re.sub(r"^<(.*?) as .*?>::", r"\1::", name)
    for c in name:
        depth += c == "<"
        if depth == 0:
            kept.append(c)
        depth -= c == ">"
    name = "".join(kept).replace("::{{closure}}", "").replace("{closure#0}", "").strip(":")
    return "::".join(part for part in name.split("::") if part)[-60:]


ours = {}
for function, ns, n in duckdb.sql(
    f"""SELECT CASE WHEN "binary" LIKE '%.so%' OR function IS NULL THEN '[' || "binary" || ']' ELSE function END, sum(weight_ns), count(*)
        FROM {base % 'stack_samples'} JOIN {base % 'stacks'} USING (stack)
        WHERE state = 'running' AND time_ns BETWEEN {begin} AND {end} GROUP BY 1"""
).fetchall():
    have = ours.setdefault(plain(function), [0, 0])
    have[0] += ns
    have[1] += n

theirs = {}
script = subprocess.run(
    ["perf", "script", "-i", str(data), "-F", "comm,time,ip,sym,dso", "--ns"], check=True, capture_output=True, text=True
)
for block in script.stdout.split("\n\n"):
    lines = block.strip("\n").splitlines()
    head = re.match(r"\s*(.+?)\s+(\d+)\.(\d{9}):", lines[0]) if lines else None
    if not head or head[1].startswith("cs-") or not begin <= int(head[2]) * 10**9 + int(head[3]) <= end:
        continue
    frames = [re.match(r"\s*[0-9a-f]+ (.+) \((.*)\)$", line) for line in lines[1:]]
    # Signals tell which function made a call to the kernel, not what the kernel does in it.
    user = [frame for frame in frames if frame and "kernel" not in frame[2] and frame[2] != "[unknown]"]
    if not user:
        theirs["[kernel]"] = theirs.get("[kernel]", 0) + 1
        continue
    name = user[0][1].split("+0x")[0]
    binary = user[0][2].rsplit("/")[-1]
    key = plain(name if name != "[unknown]" and ".so" not in binary else f"[{binary}]")
    theirs[key] = theirs.get(key, 0) + 1

all_ns, all_ours = sum(ns for ns, _ in ours.values()), sum(n for _, n in ours.values())
all_theirs = sum(theirs.values())
share = {name: (ours.get(name, [0])[0] / all_ns, theirs.get(name, 0) / all_theirs) for name in {*ours, *theirs}}
largest = set(sorted(share, key=lambda name: -share[name][0])[:10]) | set(sorted(share, key=lambda name: -share[name][1])[:10])
print(f"{all_ours} samples of ours, {all_theirs} of perf")
print("| function | ours | perf | difference | standard error |\n|---|---:|---:|---:|---:|")
bad = 0
for name in sorted(largest, key=lambda name: -max(share[name])):
    a, b = share[name]
    error = math.sqrt(a * (1 - a) / all_ours + b * (1 - b) / all_theirs)
    bad += abs(a - b) > max(4 * error, 0.03)
    print(f"| `{name}` | {100 * a:.1f} % | {100 * b:.1f} % | {100 * (a - b):+.1f} | {100 * error:.1f} |")
sys.exit(f"{bad} functions differ by more than sampling explains" if bad else 0)
