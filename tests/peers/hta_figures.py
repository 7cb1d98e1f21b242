#!/usr/bin/env python3
"""Asks HolisticTraceAnalysis for everything that it prints about one rank, and compares it with our account.

    HTA_DISABLE_NS_ROUNDING=1 hta_figures.py FOLDER OURS

FOLDER has the run as `candlescope export kineto` wrote it, OURS is what `candlescope analyze --json --top 0 --with-warmup` printed.
Fails if a call has no result, or if a figure differs by more than 1 %. HTA_SEQUENCES=NAME names the operator whose sequences are
compared; empty leaves them out, because HTA takes minutes for thousands of them.
"""

import json
import logging
import os
import sys
import tempfile
import time
import warnings

logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")

from hta.trace_analysis import TraceAnalysis  # noqa: E402

TOLERANCE = 0.01
failures: list[str] = []


def same(figure: str, theirs: float, ours: float | None, slack: float = 0.0) -> None:
    """`slack` is an absolute difference that does not count, in the figure's unit."""
    if ours is None:
        failures.append(f"{figure}: we have none")
        return
    difference = abs(theirs - ours)
    ok = difference <= slack or difference <= TOLERANCE * max(abs(theirs), abs(ours))
    print(f"  {figure:<52} {theirs:>16.3f} {ours:>16.3f}   {'' if ok else 'DIFFERS'}")
    if not ok:
        failures.append(f"{figure}: {theirs} and {ours}")


def asked(call: str, ask):
    started = time.monotonic()
    answer = ask()
    empty = answer is None or getattr(answer, "empty", False) or (hasattr(answer, "__len__") and len(answer) == 0)
    print(f"{call} ({time.monotonic() - started:.1f} s)")
    if empty:
        failures.append(f"{call}: HTA returns nothing")
        return None
    return answer


def kernel_name(row: dict) -> str:
    """A row's name as the export has it."""
    if row["kind"] == "memset":
        return "Memset (Device)"
    if row["kind"] == "memcpy":
        ends = row["name"].split("to")
        return "Memcpy " + (f"{ends[0].upper()}to{ends[1].upper()}" if len(ends) == 2 else row["name"])
    return row["name"]


def main() -> int:
    folder, ours_path = sys.argv[1:3]
    with open(ours_path) as file:
        ours = json.load(file)["runs"][0]
    (device,) = ours["devices"]
    started = time.monotonic()
    hta = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
    print(f"HTA read the trace in {time.monotonic() - started:.1f} s\n{'':<54} {'HTA':>16} {'ours':>16}")

    trace = device["trace"]
    if (table := asked("temporal breakdown, µs", lambda: hta.get_temporal_breakdown(visualize=False))) is not None:
        row = table.iloc[0]
        for theirs, key in [("idle", "idle_ns"), ("compute", "compute_ns"), ("non_compute", "non_compute_ns"), ("kernel", "span_ns")]:
            same(f"{theirs}_time", row[f"{theirs}_time(us)"], trace[key] / 1e3)

    below = ours["launch_overhead_below_ns"] / 1e3
    idle = asked("idle time breakdown, µs", lambda: hta.get_idle_time_breakdown(ranks=[0], visualize=False, consecutive_kernel_delay=below)[0])
    if idle is not None:
        streams = {row["stream"]: row for row in device["streams"]}
        # HTA asks when the launching call began, and ours when it had returned: only the sums agree.
        for stream, theirs in idle.groupby("stream")["idle_time"].sum().items():
            kinds = ["host_wait", "kernel_wait", "other", "uncertain"]
            same(f"stream {stream} idle", theirs, sum(streams[stream][kind]["ns"] for kind in kinds) / 1e3, 0.02)

    everything = {"visualize": False, "num_kernels": 100_000, "duration_ratio": 1.0, "include_memory_kernels": True}
    kernels = asked("kernel breakdown, µs", lambda: hta.get_gpu_kernel_breakdown(**everything)[1])
    if kernels is not None:
        rows = {kernel_name(row): row for row in device["kernels"]}
        same("names", len(kernels), len(rows))
        for row in kernels.sort_values("sum (us)", ascending=False).head(8).itertuples(index=False):
            mine = rows[row.name]
            for what, theirs, key in [("sum", row[1], "total_ns"), ("max", row[2], "max_ns"), ("min", row[3], "min_ns"), ("mean", row[5], "mean_ns")]:
                same(f"{row.name[-40:]} {what}", theirs, mine[key] / 1e3)
            if mine["count"] > 1:
                same(f"{row.name[-40:]} stddev", row[4], mine["stddev_ns"] / 1e3, 1e-3)

    launches = asked("kernel launch statistics, µs", lambda: hta.get_cuda_kernel_launch_stats(visualize=False)[0])
    if launches is not None:
        for column, key in [("cpu_duration", "call"), ("gpu_duration", "device"), ("launch_delay", "delay")]:
            said, mine = launches[column].describe(), device["launches"][key]
            same(f"{column} n", said["count"], mine["n"])
            for theirs, ours_key in [("mean", "mean"), ("std", "stddev"), ("50%", "p50"), ("75%", "p75"), ("max", "max")]:
                same(f"{column} {theirs}", said[theirs], mine[ours_key] / 1e3, 1e-3)

    queue = asked("queue length", lambda: hta.get_queue_length_summary(ranks=[0]))
    if queue is not None:
        for (_, stream), row in queue.iterrows():
            mine = next(row for row in device["streams"] if row["stream"] == stream)["queue"]["at_changes"]
            for theirs, key in [("count", "n"), ("mean", "mean"), ("std", "stddev"), ("50%", "p50"), ("max", "max")]:
                same(f"stream {stream} queue {theirs}", row[("queue_length", theirs)], mine[key])

    rates = asked("memory bandwidth, GB/s", lambda: hta.get_memory_bw_summary(ranks=[0]))
    if rates is not None:
        rows = {kernel_name({"kind": "memset" if row["direction"] == "memset" else "memcpy", "name": row["direction"]}): row for row in device["copies"]}
        for (_, name), row in rates.iterrows():
            mine = rows["Memset (Device)" if name == "Memset" else name]["rate"]["each"]
            for theirs, key in [("count", "n"), ("mean", "mean"), ("50%", "p50"), ("max", "max")]:
                same(f"{name} {theirs}", row[("memory_bw_gbps", theirs)], mine[key], 1e-5)

    if operator := os.environ.get("HTA_SEQUENCES", "attn"):
        sequences(hta, device, operator)
    critical_path(hta, device)

    print()
    for failure in failures:
        print(f"hta_figures.py: {failure}", file=sys.stderr)
    print("all calls answered, all figures within 1 %" if not failures else f"{len(failures)} differ")
    return 1 if failures else 0


def sequences(hta: TraceAnalysis, device: dict, operator: str) -> None:
    with tempfile.TemporaryDirectory() as out:
        ask = lambda: hta.get_frequent_cuda_kernel_sequences(operator_name=operator, output_dir=out, visualize=False)  # noqa: E731
        table = asked(f"frequent sequences of {operator}", ask)
    if table is None:
        return
    kinds = {kernel_name(row): row for row in device["kernels"]}
    mine: dict[str, list[float]] = {}
    shown = {row["name"]: name for name, row in kinds.items()}
    for row in device["sequences"]:
        last = row["path"].rsplit("/", 1)[-1]
        sums = mine.setdefault("|".join([last] + [shown[name] for name in row["kernels"]]), [0, 0])
        sums[0] += row["count"]
        sums[1] += row["total_ns"] / 1e3
    # A sequence that occurs once does not repeat, and long ones are not ours.
    for row in table.itertuples(index=False):
        if row[1] > 1 and row[0].count("|") <= 64:
            count, duration = mine.get(row[0], [0, 0])
            same(f"{row[0].split('|')[0]}, {row[0].count('|')} kernels: times", row[1], count)
            same(f"{row[0].split('|')[0]}, {row[0].count('|')} kernels: device, µs", row[2], duration)


def critical_path(hta: TraceAnalysis, device: dict) -> None:
    """HTA's shares of each step, weighted with its length."""
    sums: dict[str, float] = {}
    steps = len(hta.get_profiler_steps())

    def all_steps():
        for instance in range(steps):
            graph, ok = hta.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=instance)
            if ok:
                edges = graph.get_critical_path_breakdown()
                for bound, duration in edges.groupby("bound_by")["duration"].sum().items():
                    sums[bound] = sums.get(bound, 0) + duration
        return sums

    stdout, sys.stdout = sys.stdout, open(os.devnull, "w")
    try:
        answer = all_steps()
    finally:
        sys.stdout = stdout
    if asked(f"critical path of {steps} steps, %", lambda: answer) is None:
        return
    path, total = device["critical_path"], sum(sums.values())
    ours = {
        "cpu_bound": ["host_ns", "launch_calls_ns", "wake_up_ns"],
        "gpu_compute_bound": ["kernels_ns", "copies_ns"],
        "gpu_kernel_kernel_overhead": ["queue_ns"],
        "gpu_kernel_launch_overhead": ["launch_delay_ns"],
    }
    for bound, keys in ours.items():
        # In points: parts of a thousandth are not of interest, and HTA counts a call that waits as the host's.
        same(bound, 100 * sums.get(bound, 0) / total, 100 * sum(path[key] for key in keys) / path["total_ns"], 1.0)


if __name__ == "__main__":
    sys.exit(main())
