#!/usr/bin/env python3
"""Checks what `candlescope analyze FOLDER --json` says of two ranks, which it reads from standard input.

    check_ranks.py FOLDER [--slow none|0|1] [--share 0.2] [--source kernels] [--steps 30] [--ends-us 50] [--bus LEAST]
                   [--keep FILE] [--unslowed FILE…]

Nobody knows before a start which rank will be the slower one: hosts differ by up to a third with nobody slowed, and a rank that is slowed
on purpose may still be the faster one. So each start is held to its own truth, which own_times.py makes of the rows in FOLDER, by another
way than `analyze` goes: who is named takes longest, by as much as the finding says; where no rank takes longer than the others by what is
worth telling, nobody is named; where one clearly does, it is. A rank that was slowed computes longer than the other one, and takes longer
by itself than in a start without (--unslowed: what --keep wrote of them).
All-reduces are matched, waiting and transfer are told apart, transfers are shown as exposed or hidden, and large ones reach a share of
the link. Prints what it looked at; its status says whether all of it holds.
"""

import argparse
import json
import math
import statistics
import sys

from own_times import Own, own_times

# What docs/findings.md says of `straggler_rank`: what is less than this share of a step is not told; and how often chance may make it.
WORTH, CHANCE = 0.03, 0.001
# By so much of a step two ways to reckon a rank's own time may differ: between what must be named and what must not, both are right.
MARGIN = 0.01
# A few steps may be reckoned otherwise: on this side of the limit chance is surely less likely, on that one surely not.
SURELY, HARDLY = CHANCE / 100, CHANCE * 50


def by_chance(longest: int, steps: int) -> float:
    """How often chance makes one of two ranks the slowest in at least so many of these steps."""
    return min(1.0, 2 * sum(math.comb(steps, n) for n in range(longest, steps + 1)) / 2**steps)


class Truth:
    """Of two ranks: which takes longest by itself, and by how much, as shares of a step."""

    def __init__(self, steps: list[list[Own]]) -> None:
        self.steps = len(steps)
        mean_step = statistics.mean(own.step for of in steps for own in of)
        behind = [[of[rank].own - of[1 - rank].own for of in steps] for rank in range(2)]
        self.own = [statistics.median(of[rank].own for of in steps) for rank in range(2)]
        self.waiting = [statistics.mean(of[rank].waiting for of in steps) for rank in range(2)]
        self.longest = [sum(ns > 0 for ns in each) for each in behind]
        # What is lost by it, with and without what it makes good in the steps in which it was quicker.
        self.net = [statistics.mean(each) / mean_step for each in behind]
        self.lost = [statistics.mean(max(0.0, ns) for ns in each) / mean_step for each in behind]
        told = [[of[rank].computing for of in steps] for rank in range(2)]
        self.computing = None if any(ns is None for each in told for ns in each) else [statistics.mean(each) for each in told]
        self.slower = max(range(2), key=lambda rank: self.own[rank])

    def wanted(self) -> int | None:
        """The rank that has to be named, if it is beyond doubt."""
        rank = self.slower
        surely = self.longest[rank] >= 0.7 * self.steps and by_chance(self.longest[rank], self.steps) < SURELY
        return rank if surely and self.lost[rank] >= WORTH + MARGIN else None

    def may_be(self, rank: int) -> bool:
        """Whether it can be named."""
        most = self.longest[rank] > self.steps / 2 and by_chance(self.longest[rank], self.steps) < HARDLY
        return rank == self.slower and most and self.lost[rank] > WORTH - MARGIN

    def text(self) -> str:
        of = lambda rank: f"rank {rank} {self.own[rank] / 1e3:.0f} us (longest in {self.longest[rank]})"
        slower = self.slower
        what = f"{of(0)}, {of(1)}, of {self.steps}; rank {slower} is behind by {self.net[slower]:.1%} of a step, by {self.lost[slower]:.1%} if only steps in which it is count"
        wanted = self.wanted()
        if wanted is not None:
            return f"{what}: {wanted} has to be named"
        return f"{what}: {'it may be named or not' if self.may_be(slower) else 'nobody may be named'}"


def judge(options: argparse.Namespace, said: dict, check) -> None:
    """Holds who is named to what each rank takes by itself."""
    ranks = said["ranks"]
    by_thread = ranks[0]["thread"] is not None
    names = [rank["thread"] if by_thread else str(rank["rank"]) for rank in ranks]
    try:
        steps = own_times(options.folder, names, by_thread, said["phase"], said["source"], said["clocks"]["by"] == "one_machine")
    except ValueError as error:
        return check(f"own times: {error}", False)
    check(f"{len(steps)} steps by the rows of the runs, {said['steps']} judged", steps and abs(len(steps) - said["steps"]) <= said["odd_steps"])
    if not steps:
        return
    truth = Truth(list(steps.values()))
    if options.keep:
        with open(options.keep, "w") as file:
            json.dump({"own_ns": truth.own}, file)
    print(f"        own times by the rows of the runs: {truth.text()}")
    # Of each collective of a step the ends lie apart by as much.
    in_step = sum(of["count"] for of in said["collectives"] if of["phase"] == said["phase"]) / max(1, said["steps"])
    apart = in_step * (said["clocks"]["ends_apart_ns"] or 0)
    for rank, own, waiting in zip(ranks, truth.own, truth.waiting):
        off, step = own - rank["own_ns"], rank["step_ns"]
        # `analyze` says the least that an own time can be: what comes after the last launch is not in that of a host.
        check(
            f"rank {rank['rank']}: own {rank['own_ns'] / 1e3:.0f} us, by the rows {own / 1e3:.0f}; waiting {rank['waiting_ns'] / 1e3:.0f}, {waiting / 1e3:.0f}",
            -0.03 * step - apart <= off <= 0.1 * step + apart and abs(rank["waiting_ns"] - waiting) <= 0.02 * step + apart,
        )
    found = [finding for finding in said["findings"] if finding["code"] == "straggler_rank"]
    named, wanted = [finding["rank"] for finding in found], truth.wanted()
    check(
        f"named: {named}, slowed: {options.slow}",
        named == [wanted] if wanted is not None else not named or len(named) == 1 and named[0] in (0, 1) and truth.may_be(named[0]),
    )
    for finding in found:
        bounds, rank = finding["gain_bounds"], finding["rank"]
        check(
            f"it loses {bounds['mid']:.1%} of a step ({bounds['low']:.1%} to {bounds['high']:.1%})",
            rank in (0, 1) and bounds["low"] - MARGIN <= truth.net[rank] and truth.lost[rank] <= bounds["high"] + MARGIN,
        )
    slower, step = truth.slower, ranks[truth.slower]["step_ns"]
    waits, least = ranks[1 - slower]["waiting_ns"] / step, max(0.0, truth.net[slower] - MARGIN)
    check(f"rank {1 - slower} waits {waits:.2f} of a step, at least {least:.2f}", waits >= least)
    if options.slow != "none":
        slowed(options, truth, check)


def slowed(options: argparse.Namespace, truth: Truth, check) -> None:
    """Whether the rank that was slowed on purpose was, and what that came to."""
    slow = int(options.slow)
    # Half of it: all of a step is longer by that share, and more than that is repeated where a step waits for its host.
    if truth.computing is not None:
        ratio = truth.computing[slow] / max(1.0, truth.computing[1 - slow])
        check(f"rank {slow} was slowed: its device computes {ratio:.2f} times as long as the other's", ratio >= 1 + options.share / 2)
    unslowed = []
    for path in options.unslowed or []:
        try:
            with open(path) as file:
                unslowed.append(json.load(file)["own_ns"][slow])
        except (OSError, ValueError) as error:
            print(f"        {path}: {error}")
    own, shorter = truth.own[slow], [ns for ns in unslowed if ns < truth.own[slow]]
    if options.unslowed:
        check(
            f"rank {slow} takes {own / 1e3:.0f} us by itself, longer than in {len(shorter)} of {len(unslowed)} starts in which nobody was slowed "
            f"({', '.join(f'{ns / 1e3:.0f}' for ns in unslowed)})",
            bool(shorter),
        )
    else:
        print("        not compared with a start in which nobody was slowed: there is none")
    if truth.slower != slow:
        print(f"        rank {1 - slow} took longer still, though nobody slowed it")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", help="the runs of the ranks, or the run whose threads they are")
    options.add_argument("--slow", choices=["none", "0", "1"], default="none")
    options.add_argument("--share", type=float, default=0.2, help="by which a step is longer for the slow rank")
    options.add_argument("--source", default="kernels", help="where collectives have to be seen")
    options.add_argument("--steps", type=int, default=30, help="the fewest judged steps")
    options.add_argument("--ends-us", type=float, default=50.0, help="how far the ends of one collective may lie apart, by kernels")
    options.add_argument("--bus", type=float, help="the least share of the link that large all-reduces reach")
    options.add_argument("--keep", metavar="FILE", help="writes each rank's own time there")
    options.add_argument("--unslowed", nargs="+", metavar="FILE", help="what starts with no slow rank kept")
    options = options.parse_args()
    try:
        said = json.load(sys.stdin)
    except ValueError as error:
        print(f"  WRONG nothing was said of the ranks: {error}")
        return 1
    problems = []

    def check(what: str, holds: bool) -> None:
        print(f"  {'ok   ' if holds else 'WRONG'} {what}")
        if not holds:
            problems.append(what)

    ranks = said["ranks"]
    check(f"{len(ranks)} ranks of {said['world_size']}", len(ranks) == said["world_size"] == 2)
    check(f"collectives by {said['source']}, {said['matched']} matched", said["source"] == options.source and said["matched"] > 0)
    check(f"{said['steps']} steps of {said['phase']} judged, {said['odd_steps']} odd", said["steps"] >= options.steps and said["phase"] == "decode")
    check("nothing is damaged", not said["damage"])
    clocks = said["clocks"]
    ends = clocks["ends_apart_ns"]
    check(
        f"clocks by {clocks['by']}, ends of one collective within {(ends or 0) / 1e3:.1f} us of each other",
        clocks["agrees"] and ends is not None and (options.source != "kernels" or ends <= options.ends_us * 1e3),
    )
    us = lambda rank, key: rank[key] / 1e3
    for rank in ranks:
        waiting, transfer = us(rank, "waiting_ns"), us(rank, "transfer_ns")
        shown = us(rank, "exposed_waiting_ns"), us(rank, "exposed_transfer_ns")
        check(
            f"rank {rank['rank']}: step {us(rank, 'step_ns'):.0f} us, own {us(rank, 'own_ns'):.0f}, slowest in {rank['longest']}; waiting "
            f"{waiting:.0f} ({shown[0]:.0f} exposed), transfer {transfer:.0f} ({shown[1]:.0f} exposed)",
            transfer > 0 and shown[0] <= waiting + 1 and shown[1] <= transfer + 1 and rank["own_ns"] > 0,
        )
    for of in said["collectives"]:
        bus, link = of["bus_bytes_per_s"], of["link_bytes_per_s"]
        rate = f", {bus / 1e9:.0f} GB/s on the bus" + (f" of {link / 1e9:.0f}" if link else "") if bus else ""
        waiting = f"waiting {of['waiting_ns'] / 1e3:.1f} us, " if of["waiting_ns"] is not None else ""
        print(f"        {of['count']} {of['kind']} in {of['phase']}: {waiting}transfer {of['transfer_ns'] / 1e3:.1f} us{rate}")
    if options.bus is not None:
        shares = [of["bus_bytes_per_s"] / of["link_bytes_per_s"] for of in said["collectives"] if of["bus_bytes_per_s"] and of["link_bytes_per_s"]]
        check(f"large ones reach {', '.join(f'{share:.2f}' for share in shares) or 'nothing'} of the link", bool(shares) and all(options.bus <= share <= 1 for share in shares))
    if len(ranks) != 2:
        return 1
    judge(options, said, check)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
