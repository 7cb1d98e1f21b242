#!/usr/bin/env python3
"""Checks what `candlescope analyze FOLDER --json` says of two ranks, which it reads from standard input.

    check_ranks.py [--slow none|0|1] [--share 0.2] [--source kernels] [--steps 30] [--ends-us 50] [--bus LEAST]

The slow rank is named and no other, and without one none is; the other rank waits for it about as long as it makes a step longer;
all-reduces are matched, waiting and transfer are told apart, transfers are shown as exposed or hidden, and large ones reach a share of
the link. Prints what it looked at; its status says whether all of it holds.
"""

import argparse
import json
import sys


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--slow", choices=["none", "0", "1"], default="none")
    options.add_argument("--share", type=float, default=0.2, help="by which a step is longer for the slow rank")
    options.add_argument("--source", default="kernels", help="where collectives have to be seen")
    options.add_argument("--steps", type=int, default=30, help="the fewest judged steps")
    options.add_argument("--ends-us", type=float, default=50.0, help="how far the ends of one collective may lie apart, by kernels")
    options.add_argument("--bus", type=float, help="the least share of the link that large all-reduces reach")
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
    named = [finding["rank"] for finding in said["findings"] if finding["code"] == "straggler_rank"]
    if options.slow == "none":
        check(f"stragglers: {named}, of none", named == [])
    else:
        slow = int(options.slow)
        check(f"stragglers: {named}, of {slow}", named == [slow])
        other, step = ranks[1 - slow], ranks[slow]["step_ns"]
        # Half of it: hosts of a start differ, and what the others waited for without that is in it, too.
        least = 0.5 * options.share / (1 + options.share)
        check(f"rank {1 - slow} waits {other['waiting_ns'] / step:.2f} of a step, at least {least:.2f}", other["waiting_ns"] >= least * step)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
