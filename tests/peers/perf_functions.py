#!/usr/bin/env python3
"""Holds sampled functions against those of `perf record`, of one and the same run.

Usage: tests/peers/perf_functions.py CANDLESCOPE OUT [WORD…]

Runs `perf record -F 499 -g CANDLESCOPE profile WORD… --out OUT/run` (so both sample the same threads at the same time), takes
from both what was on a CPU between the first measured step's begin and the last one's end, and compares each function's share
of its own time: the ten largest of either, with the error of counting samples. Needs Linux's `perf` and Python's `duckdb`.
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
    f"""SELECT coalesce(function, '[' || regexp_extract(coalesce(module, '?'), '[^/]*$') || ']'), sum(weight_ns), count(*)
        FROM {base % 'stack_samples'} JOIN {base % 'stacks'} USING (stack)
        WHERE state = 'running' AND time_ns BETWEEN {begin} AND {end} GROUP BY 1"""
).fetchall():
    have = ours.setdefault(plain(function), [0, 0])
    have[0] += ns
    have[1] += n

theirs = {}
script = subprocess.run(
    ["perf", "script", "-i", str(data), "-F", "comm,time,ip,sym,dso", "--ns", "-G"], check=True, capture_output=True, text=True
)
for line in script.stdout.splitlines():
    found = re.match(r"\s*(.+?)\s+(\d+)\.(\d{9}):\s+[0-9a-f]+ (.+) \((.*)\)$", line)
    if not found or found[1].startswith("cs-"):
        continue
    if begin <= int(found[2]) * 10**9 + int(found[3]) <= end:
        symbol = found[4] if found[4] != "[unknown]" else f"[{found[5].rsplit('/')[-1]}]"
        key = plain(symbol.split("+0x")[0])
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
