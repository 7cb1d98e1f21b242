#!/usr/bin/env python3
"""What each rank of a start takes by itself, step by step: the truth that check_ranks.py holds `candlescope analyze` to.

    own_times.py FOLDER [--phase decode] [--source kernels|device_time|host] [--threads NAME NAME…]

From the rows of the runs' tables, by another way than `analyze` goes. Where all-reduces are kernels: they end together on all ranks, so a
rank waited in one for as long as it lasts longer than the shortest of the ranks, and no clocks are compared. Then the step is gone through
from its beginning, and whatever ran on the device is moved ahead by all that was waited for before it, but not before its host had
launched it. What the end of the step moves by is what others cost it; the rest is its own. Where all-reduces are intervals in which the
host waits (`host`, `device_time`), a rank waited until the last one came, and its step is shorter by that.
Prints a row a rank: medians, microseconds.
"""

import argparse
import bisect
import collections
import csv
import dataclasses
import io
import os
import re
import statistics
import subprocess
import sys

# As the tests name and docs/fleet.md lists them.
TOGETHER = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
KERNEL = re.compile(r"nccl[A-Za-z]*_(AllReduce|AllGather|ReduceScatter|AlltoAll|AllToAll)(?![A-Za-z])")
# How far the time lines of two processes may lie apart, and how exactly a device's clock is known, nanoseconds.
CLOCKS_NS = 20_000


@dataclasses.dataclass
class Own:
    """A rank's step, nanoseconds."""

    step: float
    own: float
    waiting: float
    transfer: float
    # Kernels but the collectives: None where none were recorded.
    computing: float | None


@dataclasses.dataclass
class Ran:
    """What ran on a device."""

    kind: str
    name: str
    start: int
    end: int
    called: int | None
    returned: int | None


@dataclasses.dataclass
class Step:
    start: int
    end: int
    ran: list[Ran] = dataclasses.field(default_factory=list)
    # Collectives, as (start, end).
    together: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    waited: list[int] = dataclasses.field(default_factory=list)


def rows(sql: str, folder: str) -> list[dict[str, str]]:
    binary = os.environ.get("CANDLESCOPE_BINARY", "candlescope")
    answer = subprocess.run([binary, "query", sql, folder, "--format", "csv", "--limit", "0"], capture_output=True, text=True)
    if answer.returncode:
        raise ValueError(f"`{sql}` of {folder}: {answer.stderr.strip()}")
    return list(csv.DictReader(io.StringIO(answer.stdout)))


def number(text: str) -> int | None:
    return int(text) if text else None


def union(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[list[int]] = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1][1] = max(end, out[-1][1])
        else:
            out.append([start, end])
    return [(start, end) for start, end in out]


def overlap(busy: list[tuple[int, int]], start: int, end: int) -> int:
    at, total = bisect.bisect_right(busy, start, key=lambda one: one[1]), 0
    while at < len(busy) and busy[at][0] < end:
        total += min(end, busy[at][1]) - max(start, busy[at][0])
        at += 1
    return total


def read(folder: str, ranks: list[str], by_thread: bool, phase: str, source: str) -> list[dict[int, Step]]:
    """The steps of each rank by number, without those that warmed up: of threads each one's own numbers."""
    asked = {row["run"]: number(row["asked"]) or 0 for row in rows("SELECT run, asked FROM runs", folder)}
    sql = "SELECT run, rank, step, phase, request, thread, host_start_ns, host_dur_ns FROM steps ORDER BY host_start_ns, step"
    steps: list[dict[int, Step]] = [{} for _ in ranks]
    # By run and number, as other tables have them.
    found: dict[tuple[str, str], Step] = {}
    counts = [0] * len(ranks)
    runs: list[set[str]] = [set() for _ in ranks]
    for row in rows(sql, folder):
        who = row["thread"] if by_thread else row["rank"]
        if who not in ranks:
            continue
        rank = ranks.index(who)
        runs[rank].add(row["run"])
        nth = counts[rank] if by_thread else int(row["step"])
        counts[rank] += 1
        if row["phase"] != phase or (number(row["request"]) or sys.maxsize) <= asked[row["run"]]:
            continue
        start = int(row["host_start_ns"])
        steps[rank][nth] = found[row["run"], row["step"]] = Step(start, start + int(row["host_dur_ns"]))
    if any(len(of_rank) > 1 for of_rank in runs):
        raise ValueError(f"{folder} has more than one run of a rank")
    sql = (
        "SELECT run, step, kind, name, gpu_start_ns, gpu_dur_ns, launch_start_ns, launch_dur_ns FROM kernels WHERE step IS NOT NULL "
        "ORDER BY gpu_start_ns"
    )
    for row in rows(sql, folder) if source != "host" else []:
        if (step := found.get((row["run"], row["step"]))) is None:
            continue
        start, called = int(row["gpu_start_ns"]), number(row["launch_start_ns"])
        returned = None if called is None else called + (number(row["launch_dur_ns"]) or 0)
        step.ran.append(Ran(row["kind"], row["name"], start, start + int(row["gpu_dur_ns"]), called, returned))
        if source == "kernels" and KERNEL.match(row["name"]):
            step.together.append((step.ran[-1].start, step.ran[-1].end))
    if source != "kernels":
        read_intervals(folder, found, source)
    return steps


def read_intervals(folder: str, found: dict[tuple[str, str], Step], source: str) -> None:
    plain = "lower(replace(replace(name, '_', ''), '-', ''))"
    sql = (
        "SELECT run, step, host_start_ns, host_dur_ns, gpu_start_ns, gpu_dur_ns FROM spans WHERE step IS NOT NULL AND "
        f"{plain} IN {TOGETHER} ORDER BY host_start_ns, host_dur_ns DESC"
    )
    ends: dict[tuple[str, str], int] = {}
    for row in rows(sql, folder):
        at = row["run"], row["step"]
        start = int(row["host_start_ns"])
        end = start + int(row["host_dur_ns"])
        # One inside another, as an operation in a layer of its name, is the same one.
        if at not in found or end <= ends.get(at, 0):
            continue
        ends[at] = end
        if source == "device_time":
            # One through the host is a copy from the device, an exchange, and a copy back.
            copies = [ran for ran in found[at].ran if ran.kind == "memcpy" and ran.called is not None and start <= ran.called < end]
            if not row["gpu_start_ns"]:
                # It has no time: no rank's step is then known.
                found[at].together.append((0, 0))
                continue
            start = int(row["gpu_start_ns"])
            end = start + int(row["gpu_dur_ns"])
            start, end = min([start, *(copy.start for copy in copies)]), max([end, *(copy.end for copy in copies)])
        found[at].together.append((start, end))


def matches(steps: list[Step], source: str, one_machine: bool) -> bool:
    """Whether the collectives of a step are the same on all ranks, and known."""
    if source == "kernels" and not all(step.ran for step in steps):
        return False
    if len({len(step.together) for step in steps}) != 1 or any(end == 0 for step in steps for _, end in step.together):
        return False
    each = list(zip(*(step.together for step in steps)))
    return not one_machine or all(max(start for start, _ in all_) <= min(end for _, end in all_) + CLOCKS_NS for all_ in each)


def to_device(steps: list[Step]) -> int:
    """From a call to the beginning of its kernel, where the device had nothing else to do."""
    took = []
    for step in steps:
        free = 0
        for ran in step.ran:
            if ran.called is not None and free < ran.called:
                took.append(ran.start - ran.called)
            free = max(free, ran.end)
    return max(0, int(statistics.median(took))) if took else 0


def moved(step: Step, arrives: int) -> int:
    """By how much the end of a step comes ahead if nobody is waited for."""
    computing = union([(ran.start, ran.end) for ran in step.ran if ran.kind == "kernel" and not KERNEL.match(ran.name)])
    # What was waited for is known at a collective's end; at that time, and before what begins then.
    events = [(end, 0, end - waited) for (_, end), waited in zip(step.together, step.waited) if waited > 0]
    events += [(ran.start, 1, at) for at, ran in enumerate(step.ran)]
    device = host = 0
    busy_until = step.start
    for time, kind, of in sorted(events):
        if kind == 0:
            # Beside what it would have had to wait for another kernel ran, which takes its time all the same.
            device += (time - of) - overlap(computing, of, time)
            continue
        ran = step.ran[of]
        if ran.called is None:
            continue
        device = min(device, max(0, ran.start - ran.called - arrives) + host)
        if ran.kind == "memcpy" and ran.returned >= ran.end:
            # The host waited for it, and is ahead by as much from here on.
            busy_until, host = max(busy_until, ran.called), device
        else:
            busy_until = max(busy_until, ran.returned)
    return max(0, min(device, host + step.end - busy_until))


def own_times(
    folder: str, ranks: list[str], by_thread: bool = False, phase: str = "decode", source: str = "kernels", one_machine: bool = True
) -> dict[int, list[Own]]:
    """Of each step that all ranks have, what each rank took."""
    steps = read(folder, ranks, by_thread, phase, source)
    judged: dict[int, list[Step]] = {}
    for nth in sorted(set.intersection(*(set(of_rank) for of_rank in steps))):
        of_step = [of_rank[nth] for of_rank in steps]
        if matches(of_step, source, one_machine):
            judged[nth] = of_step
    for of_step in judged.values():
        for all_ in zip(*(step.together for step in of_step)):
            last, shortest = max(start for start, _ in all_), min(end - start for start, end in all_)
            for step, (start, end) in zip(of_step, all_):
                step.waited.append(end - start - shortest if source == "kernels" else min(last - start, end - start))
    arrives = [to_device([of_step[rank] for of_step in judged.values()]) for rank in range(len(ranks))]

    def own(step: Step, rank: int) -> Own:
        took, waited = step.end - step.start, sum(step.waited)
        transfer = sum(end - start for start, end in step.together) - waited
        computing = sum(ran.end - ran.start for ran in step.ran if ran.kind == "kernel" and not KERNEL.match(ran.name)) if step.ran else None
        ahead = moved(step, arrives[rank]) if source == "kernels" else waited
        return Own(took, max(0, took - ahead), waited, transfer, computing)

    return {nth: [own(step, rank) for rank, step in enumerate(of_step)] for nth, of_step in judged.items()}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder")
    options.add_argument("--phase", default="decode")
    options.add_argument("--source", choices=["kernels", "device_time", "host"], default="kernels")
    options.add_argument("--threads", nargs="+", metavar="NAME", help="threads that are the ranks, in their order; else processes 0 and 1")
    options = options.parse_args()
    steps = own_times(options.folder, options.threads or ["0", "1"], bool(options.threads), options.phase, options.source)
    print(f"{len(steps)} steps")
    for rank in range(len(options.threads or ["0", "1"])):
        us = {key: statistics.median(getattr(of[rank], key) or 0 for of in steps.values()) / 1e3 for key in Own.__dataclass_fields__} if steps else {}
        print(f"rank {rank}: {', '.join(f'{key} {value:.1f}' for key, value in us.items())}")
    return 0 if steps else 1


if __name__ == "__main__":
    sys.exit(main())
