#!/usr/bin/env python3
"""Recomputes a device's figures from a run's tables and compares them with those of `candlescope report`.

Usage: truth.py RUN [NSYS.sqlite TOKENS]     RUN holds metrics.json; needs pyarrow and nothing of ours.

Everything is computed from the definitions: a device's busy time is the union of its kernels, copies and memsets within the union of
the recorded steps; MBU is bytes of these steps over that time and the peak; tokens/s likewise. With a database of Nsight Systems, made
of the same program without candlescope, the kernel time a token of both is compared, too.
"""
import json
import sqlite3
import sys
from pathlib import Path

import pyarrow.dataset as ds


def rows(run, table):
    files = sorted(str(path) for path in (run / table).glob("part-*.parquet"))
    return ds.dataset(files).to_table().to_pylist() if files else []


def union(windows):
    out = []
    for start, end in sorted(w for w in windows if w[1] > w[0]):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def length(windows):
    return sum(end - start for start, end in windows)


def overlap(a, b):
    total, j = 0, 0
    for start, end in a:
        while j < len(b) and b[j][1] <= start:
            j += 1
        k = j
        while k < len(b) and b[k][0] < end:
            total += min(end, b[k][1]) - max(start, b[k][0])
            k += 1
    return total


def main():
    run = Path(sys.argv[1])
    metrics = json.loads((run / "metrics.json").read_text())
    manifest = json.loads((run / "run.json").read_text())
    # The first requests are warm-up, and in no figure.
    warmup = int(manifest["options"].get("warmup", 0))
    steps = {s["step"]: s for s in rows(run, "steps") if (s["request"] or warmup + 1) > warmup}
    kernels = rows(run, "kernels")
    window = lambda s: (s["host_start_ns"], s["host_start_ns"] + s["host_dur_ns"])
    worked = lambda k: (k["gpu_start_ns"], k["gpu_start_ns"] + k["gpu_dur_ns"])
    ours = metrics["gpu"]["all"]
    checks = []

    def check(name, truth, printed, tolerance=1e-9):
        ok = abs(truth - printed) <= tolerance * max(abs(truth), 1e-30)
        checks.append(ok)
        print(f"{'ok  ' if ok else 'WRONG'} {name}: recomputed {truth:.9g}, printed {printed:.9g}")

    wall = busy = opened = streams = 0
    devices = sorted({k["device"] for k in kernels})
    recorded = set()
    for device in devices:
        own = [k for k in kernels if k["device"] == device]
        numbers = {k["step"] for k in own if k["step"] in steps}
        recorded |= numbers
        stretch = union(window(steps[n]) for n in numbers)
        wall += length(stretch)
        busy += overlap(stretch, union(worked(k) for k in own))
        for thread in {steps[n]["thread"] for n in numbers}:
            opened += length(union(window(steps[n]) for n in numbers if steps[n]["thread"] == thread))
        for stream in {k["stream"] for k in own}:
            streams += overlap(stretch, union(worked(k) for k in own if k["stream"] == stream))
    check("recorded steps", len(recorded), ours["steps"])
    check("devices", len(devices), ours["devices"])
    check("wall, ns", wall, ours["wall_ns"])
    check("busy, ns", busy, ours["busy_ns"])
    check("busy share", busy / wall, ours["busy_share"])
    check("steps at once", opened / wall, ours["steps_at_once"])
    check("streams at once", streams / busy, ours["streams_at_once"])
    launched = sum(1 for k in kernels if k["kind"] == "kernel" and k["step"] in steps)
    check("kernels a step", launched / len(recorded), ours["launches"] / ours["steps"])
    parts = ours["busy_ns"] + ours["idle_ns"] + ours["unattributed_ns"]
    check("busy + idle + unattributed, ns", wall, parts, 0)

    decode = [s for s in steps.values() if s["phase"] == "decode"]
    open_ns = length(union(window(s) for s in decode))
    printed = next(row for row in metrics["phases"]["rows"] if row["name"] == "decode")
    check("decode tokens/s", sum(s["tokens"] for s in decode) / open_ns * 1e9, printed["tokens_per_s"])
    moved = sum(s["bytes"] for s in decode)
    check("decode GB/s of weights and KV cache", moved / open_ns, printed["gbytes"])
    done = sum(s["flops"] for s in decode)
    peaks = {(p["kind"], p.get("dtype")): p["value"] for p in manifest["environment"].get("peaks", [])}
    for use in metrics["utilisation"]:
        if use["phase"] == "decode" and use["over"] == "wall" and use["metric"] in ("mbu", "mfu"):
            work, kind = (moved, ("bandwidth", None)) if use["metric"] == "mbu" else (done, ("flops", use["dtype"]))
            check(use["metric"].upper() + " of decode", work / open_ns * 1e9 / (peaks[kind] * len(devices)), use["value"])

    if len(sys.argv) > 3:
        tokens = int(sys.argv[3])
        mine = sum(k["gpu_dur_ns"] for k in kernels if k["kind"] == "kernel" and k["step"] in steps) / len(decode)
        base = sqlite3.connect(f"file:{sys.argv[2]}?mode=ro", uri=True)
        # The measured part comes last: take as many kernels from the end as these steps launch.
        wanted = round(launched / len(decode) * tokens)
        theirs = base.execute(
            "SELECT SUM(d), COUNT(*) FROM (SELECT end - start AS d FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start DESC LIMIT ?)",
            (wanted,),
        ).fetchone()
        theirs = theirs[0] / tokens
        print(f"kernel time a token: candlescope {mine / 1e3:.2f} us, Nsight Systems {theirs / 1e3:.2f} us")
        check("kernel time a token against Nsight Systems", mine, theirs, 0.02)
    print(f"{sum(checks)} of {len(checks)} agree")
    sys.exit(0 if all(checks) else 1)


if __name__ == "__main__":
    main()
