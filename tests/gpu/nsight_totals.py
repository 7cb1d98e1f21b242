#!/usr/bin/env python3
"""Compares the kernels of two ranks with those that Nsight Systems saw of another start of the program.

    nsight_totals.py FOLDER RANK0.sqlite RANK1.sqlite [--again RANK0.sqlite RANK1.sqlite] [--within 0.02] [--least 0.01]

FOLDER has runs whose kernels were recorded until the program ended. Of each name, as many launches are taken from the end of
Nsight's: then both have the same steps. Totals are compared by name on each rank, of names with at least 1 % of all time. With --again,
Nsight's of one more start: a name of which two starts below Nsight differ by more than that from each other is not held to it.

A collective lasts as long as ranks wait for each other, which no two starts do alike: of NCCL's kernels, those of the rank that came
last are compared, which is the shorter one of each pair, and of them the large ones; the others' median is printed.
"""

import argparse
import collections
import csv
import io
import os
import re
import sqlite3
import statistics
import subprocess
import sys

# A large one of 256 MiB takes 0.6 ms where the link carries what NVIDIA promises.
LARGE_NS = 400_000


def plain(name: str) -> str:
    """A name without types and arguments, which demanglers write differently."""
    head = re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0].strip()
    return head.split()[-1] if head else name


def ours(folder: str) -> dict[int, list[tuple[str, int]]]:
    binary = os.environ.get("CANDLESCOPE_BINARY", "candlescope")
    sql = "SELECT rank, name, gpu_dur_ns FROM kernels WHERE kind = 'kernel' ORDER BY rank, gpu_start_ns"
    answer = subprocess.run([binary, "query", sql, folder, "--format", "csv", "--limit", "0"], check=True, capture_output=True, text=True)
    ranks = collections.defaultdict(list)
    for row in csv.DictReader(io.StringIO(answer.stdout)):
        ranks[int(row["rank"])].append((plain(row["name"]), int(row["gpu_dur_ns"])))
    return dict(ranks)


def nsight(path: str) -> list[tuple[str, int]]:
    base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    sql = "SELECT s.value, k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName ORDER BY k.start"
    return [(plain(name), ns) for name, ns in base.execute(sql)]


def last(kernels: list[tuple[str, int]], counts: dict[str, int]) -> dict[str, list[int]]:
    by_name = collections.defaultdict(list)
    for name, ns in kernels:
        by_name[name].append(ns)
    return {name: by_name[name][-count:] for name, count in counts.items()}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder")
    options.add_argument("sqlite", nargs=2)
    options.add_argument("--again", nargs=2, metavar="sqlite")
    options.add_argument("--within", type=float, default=0.02, help="the largest difference, as a share")
    options.add_argument("--least", type=float, default=0.01, help="share of all time of names that count")
    options = options.parse_args()
    mine, problems, compared = ours(options.folder), 0, 0
    if sorted(mine) != [0, 1]:
        print(f"nsight_totals.py: kernels of the ranks {sorted(mine)}, not of 0 and 1", file=sys.stderr)
        return 1

    def check(what: str, a: float, b: float, again: float | None = None) -> None:
        nonlocal problems, compared
        compared += 1
        holds = b > 0 and abs(a / b - 1) <= options.within
        differ = again is not None and b > 0 and abs(again / b - 1) > options.within
        problems += not holds and not differ
        said = "" if again is None else f", another start of Nsight {again / b if b else 0:.4f}"
        print(f"  {'ok   ' if holds else 'apart' if differ else 'WRONG'} {what}: {a / 1e3:.1f} us, Nsight {b / 1e3:.1f} us, ratio {a / b if b else 0:.4f}{said}")

    pairs = {"ours": [], "theirs": []}
    for rank, path in enumerate(options.sqlite):
        counts = collections.Counter(name for name, _ in mine[rank])
        here, there = last(mine[rank], counts), last(nsight(path), counts)
        again = last(nsight(options.again[rank]), counts) if options.again else None
        total = sum(sum(each) for name, each in here.items() if not name.startswith("nccl"))
        for name, each in sorted(here.items(), key=lambda item: -sum(item[1])):
            if len(there[name]) != len(each):
                problems += 1
                print(f"  WRONG rank {rank}: {name}: {len(each)} launches, Nsight has {len(there[name])} in all")
            elif name.startswith("nccl"):
                print(f"        rank {rank}: {name}: {len(each)} launches, {sum(each) / 1e3:.0f} us with waiting, Nsight {sum(there[name]) / 1e3:.0f} us")
                pairs["ours"].append(each)
                pairs["theirs"].append(there[name])
            elif sum(each) >= options.least * total:
                check(f"rank {rank}: {len(each)} {name}", sum(each), sum(there[name]), sum(again[name]) if again else None)
    # From the end, because a rank may have been recorded a step longer.
    shortest = {side: [min(both) for both in zip(*map(reversed, each))] for side, each in pairs.items() if len(each) == 2}
    if len(shortest) != 2:
        problems += 1
        print("  WRONG there is not one kind of NCCL's kernels on each rank")
    else:
        large = {side: [ns for ns in each if ns >= LARGE_NS] for side, each in shortest.items()}
        small = {side: [ns for ns in each if ns < LARGE_NS] for side, each in shortest.items()}
        if all(small.values()):
            print(f"        small all-reduces of who came last: median {statistics.median(small['ours']) / 1e3:.2f} us, Nsight {statistics.median(small['theirs']) / 1e3:.2f} us")
        if len(large["ours"]) != len(large["theirs"]):
            # One that was interrupted reaches the limit on one side only.
            print(f"        large all-reduces: {len(large['ours'])} and {len(large['theirs'])}")
        if all(large.values()):
            check("large all-reduces of who came last, mean", statistics.mean(large["ours"]), statistics.mean(large["theirs"]))
    print(f"{compared} compared, {problems} differ by more than {options.within:.0%} or have no other")
    return 1 if problems or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
