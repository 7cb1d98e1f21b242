#!/usr/bin/env python3
"""Ratios of what was measured in turns, each with its interval.

    ratios.py BASE FILE [FILE]

Lines of a FILE: the turn, what was measured, the figure; by white space. Each way is compared with BASE: the ratio of the medians, and
the interval that holds 95 % of those of turns drawn anew (with replacement, 4,000 times). A turn counts if it has BASE and the way. With
a second FILE, made of the same program under something else, also its ratio of each way ÷ the first one's: what that adds to a way.
"""
import collections
import random
import statistics
import sys

DRAWS = 4000


def read(path):
    turns = collections.defaultdict(dict)
    ways = []
    with open(path) as file:
        for line in file:
            turn, way, figure = line.split()
            turns[turn][way] = float(figure)
            if way not in ways:
                ways.append(way)
    return turns, ways


def ratios(turns, base, way, seed):
    """The ratio, those of turns drawn anew, and the pairs; None without a turn that has both."""
    pairs = [(turn[base], turn[way]) for turn in turns.values() if base in turn and way in turn]
    if not pairs:
        return None
    of = lambda drawn: statistics.median(b for _, b in drawn) / statistics.median(a for a, _ in drawn)
    dice = random.Random(seed)
    return of(pairs), [of(dice.choices(pairs, k=len(pairs))) for _ in range(DRAWS)], pairs


def interval(drawn):
    drawn = sorted(drawn)
    return drawn[int(0.025 * len(drawn))], drawn[int(0.975 * len(drawn)) - 1]


def percent(ratio, drawn):
    low, high = interval(drawn)
    return f"{(ratio - 1) * 100:+6.2f} % ({(low - 1) * 100:+.2f} to {(high - 1) * 100:+.2f})"


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    base, paths = sys.argv[1], sys.argv[2:]
    found = []
    for path in paths:
        try:
            turns, ways = read(path)
        except OSError as error:
            sys.exit(f"ratios.py: {error}: nothing was measured")
        if base not in ways:
            sys.exit(f"ratios.py: {path} has no {base}")
        print(f"  {path}: beside {base}")
        of_way = {}
        for number, way in enumerate(ways):
            figures = [turn[way] for turn in turns.values() if way in turn]
            line = f"  {way:16} n {len(figures):4}  median {statistics.median(figures):10.4f}"
            told = ratios(turns, base, way, number) if way != base else None
            if told:
                of_way[way] = told
                line += f"  {percent(told[0], told[1])}"
                if len(told[2]) < 4:
                    line += f"  of {len(told[2])} turns only"
            print(line)
        found.append(of_way)
    if len(found) == 2:
        print(f"  what the second adds, beside what it adds to {base}")
        for way in found[0]:
            if way in found[1]:
                (a, drawn_a, _), (b, drawn_b, _) = found[0][way], found[1][way]
                print(f"  {way:16} {percent(b / a, [y / x for x, y in zip(drawn_a, drawn_b)])}")


if __name__ == "__main__":
    main()
