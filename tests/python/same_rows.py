#!/usr/bin/env python3
"""Whether two engines gave the same rows to a question, in whatever order: as `engines.rs` compares them.

As a program: reads {"ours": [[…], …], "theirs": [[…], …], "within": x} from standard input, and prints the rows of either side that
have none like them on the other, as two lists in JSON.
"""

import json
import sys
from collections import defaultdict


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def written(row):
    """A row such that most equal rows of different engines are equal: numbers to eight digits."""
    return tuple(f"{value:.7e}" if is_number(value) else repr(value) for value in row)


def alike(a, b, within):
    """Engines add in different orders: numbers with a fraction may differ by this share. Whole numbers are equal or not."""

    def same(a, b):
        if not (is_number(a) and is_number(b)) or isinstance(a, int) and isinstance(b, int):
            return a == b and isinstance(a, bool) == isinstance(b, bool)
        return abs(a - b) <= within * max(abs(a), abs(b))

    return len(a) == len(b) and all(map(same, a, b))


def differences(ours, theirs, within=1e-6):
    """Rows of either side that have none like them on the other."""
    by_text = defaultdict(list)
    for row in theirs:
        by_text[written(row)].append(row)
    left, others = [], []
    for row in ours:
        same = by_text[written(row)]
        at = next((at for at, other in enumerate(same) if alike(row, other, within)), None)
        left.append(row) if at is None else same.pop(at)
    for rows in by_text.values():
        others += rows
    rest = []
    for row in left:
        at = next((at for at, other in enumerate(others) if alike(row, other, within)), None)
        rest.append(row) if at is None else others.pop(at)
    return rest, others


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps(differences(asked["ours"], asked["theirs"], asked["within"])))
