#!/usr/bin/env python3
"""Holds sampled functions against those of another profiler, of one and the same run.

Usage: tests/peers/sampled_functions.py perf|samply CANDLESCOPE OUT [WORD…]

Runs CANDLESCOPE profile WORD… --out OUT/run under `perf record -F 499 -g` or `samply record -r 499` (so both sample the same
threads at the same time), takes from both what was on a CPU between the first measured step's begin and the last one's end, and
compares each function's share of its own time: the ten largest of either, with the error of counting samples. Shared libraries are
taken whole, because who has their debug information knows more names; time in the kernel is that of the function that called it.
Needs the profiler, which samply wants `kernel.perf_event_paranoid` at most 1 for, and Python's `duckdb`.
Fails if a share differs by more than four standard errors and 3 points.
"""

import bisect
import json
import math
import pathlib
import re
import subprocess
import sys
import time

import duckdb

peer, program, out, words = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4:]
out.mkdir(parents=True, exist_ok=True)
run, data = out / "run", out / f"{peer}.data"
subprocess.run(["rm", "-rf", str(run)], check=True)
RECORD = {
    "perf": ["perf", "record", "-q", "-F", "499", "-e", "cpu-clock", "-g", "-k", "CLOCK_REALTIME", "-o", str(data)],
    "samply": ["samply", "record", "-s", "-n", "-r", "499", "--unstable-presymbolicate", "-o", f"{data}.json", "--"],
}
profile = [program, "profile", *words, "--no-progress", "--out", str(run)]
subprocess.run([*RECORD[peer], *profile], check=True, stdout=subprocess.DEVNULL)

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



def of_perf():
    """Name and time of each sample on a CPU."""
    script = subprocess.run(
        ["perf", "script", "-i", str(data), "-F", "comm,time,ip,sym,dso", "--ns"], check=True, capture_output=True, text=True
    )
    for block in script.stdout.split("\n\n"):
        lines = block.strip("\n").splitlines()
        head = re.match(r"\s*(.+?)\s+(\d+)\.(\d{9}):", lines[0]) if lines else None
        if not head or head[1].startswith("cs-"):
            continue
        at = int(head[2]) * 10**9 + int(head[3])
        frames = [re.match(r"\s*[0-9a-f]+ (.+) \((.*)\)$", line) for line in lines[1:]]
        # Signals tell which function made a call to the kernel, not what the kernel does in it.
        user = [frame for frame in frames if frame and "kernel" not in frame[2] and frame[2] != "[unknown]"]
        if not user:
            yield at, "[kernel]"
            continue
        name, binary = user[0][1].split("+0x")[0], user[0][2].rsplit("/")[-1]
        yield at, name if name != "[unknown]" and ".so" not in binary else f"[{binary}]"


def of_samply():
    """The same, of a profile in Firefox Profiler's format (24) and the names beside it."""
    profile = json.loads(pathlib.Path(f"{data}.json").read_text())
    names = json.loads(pathlib.Path(f"{data}.syms.json").read_text())
    symbols = {}
    for binary in names["data"]:
        table = sorted((entry["rva"], entry["size"], entry["symbol"]) for entry in binary["symbol_table"])
        symbols[binary["code_id"]] = table
    # Its times are those of the system's monotonic clock.
    offset = time.time_ns() - time.monotonic_ns()
    for thread in profile["threads"]:
        if thread["name"].startswith("cs-"):
            continue
        stacks, frames, functions, resources = (thread[key] for key in ("stackTable", "frameTable", "funcTable", "resourceTable"))
        samples = thread["samples"]
        for stack, at, ran in zip(samples["stack"], samples["time"], samples["threadCPUDelta"], strict=True):
            if not ran or stack is None:
                continue
            name = "[kernel]"
            while stack is not None:
                frame = stacks["frame"][stack]
                resource = functions["resource"][frames["func"][frame]]
                binary = profile["libs"][resources["lib"][resource]] if resource is not None and resource >= 0 else None
                if binary and "kernel" not in binary["name"]:
                    table = symbols.get(binary["codeId"], [])
                    address = frames["address"][frame]
                    place = bisect.bisect_right(table, (address, math.inf, math.inf)) - 1
                    known = place >= 0 and address < table[place][0] + table[place][1]
                    name = names["string_table"][table[place][2]] if known and ".so" not in binary["name"] else f"[{binary['name']}]"
                    break
                stack = stacks["prefix"][stack]
            yield int(at * 1e6) + offset, name


theirs = {}
for at, name in {"perf": of_perf, "samply": of_samply}[peer]():
    if begin <= at <= end:
        theirs[plain(name)] = theirs.get(plain(name), 0) + 1

all_ns, all_ours = sum(ns for ns, _ in ours.values()), sum(n for _, n in ours.values())
all_theirs = sum(theirs.values())
share = {name: (ours.get(name, [0])[0] / all_ns, theirs.get(name, 0) / all_theirs) for name in {*ours, *theirs}}
largest = set(sorted(share, key=lambda name: -share[name][0])[:10]) | set(sorted(share, key=lambda name: -share[name][1])[:10])
print(f"{all_ours} samples of ours, {all_theirs} of {peer}")
print(f"| function | ours | {peer} | difference | standard error |\n|---|---:|---:|---:|---:|")
bad = 0
for name in sorted(largest, key=lambda name: -max(share[name])):
    a, b = share[name]
    error = math.sqrt(a * (1 - a) / all_ours + b * (1 - b) / all_theirs)
    bad += abs(a - b) > max(4 * error, 0.03)
    print(f"| `{name}` | {100 * a:.1f} % | {100 * b:.1f} % | {100 * (a - b):+.1f} | {100 * error:.1f} |")
sys.exit(f"{bad} functions differ by more than sampling explains" if bad else 0)
