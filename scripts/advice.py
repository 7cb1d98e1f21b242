#!/usr/bin/env python3
"""What became of promises: a table of those that optimisations put to the test, for docs/measurements/advice.md.

    scripts/advice.py STUDY... > TABLE.md

Each STUDY is a folder that `candlescope optimise` wrote. The rules of the test are those of docs/optimise.md: a promise came true
if the interval of what was obtained meets its bounds; a result that is less certain than that tests nothing. Beside that stands
whether it was near: within 10 % of the step before, and within 30 % of itself where it promised more than 5 %.
"""
import json
import pathlib
import sys

RESOLVED, RESOLVED_PART = 0.05, 0.3  # analysis/figures/src/advice/record.rs


def account(folder):
    return json.loads((pathlib.Path(folder) / "study.json").read_text())["facts"]["account"]


def words(change):
    pairs = list(change["environment"].items()) + [("--" + name, value) for name, value in change["options"].items()]
    return " ".join(f"without {name}" if value is None else f"{name}={value}" for name, value in pairs)


def verdict(promised, obtained):
    """Whether it came true, and whether it was near; None where the result tests nothing."""
    if obtained["low"] is None:
        return None
    came_true = obtained["low"] <= promised["high"] and obtained["high"] >= promised["low"]
    # A wide interval that meets the bounds would meet anything; one that does not says that they are wrong.
    if came_true and (obtained["high"] - obtained["low"]) / 2 > max(RESOLVED, RESOLVED_PART * abs(promised["mid"])):
        return None
    off = abs(promised["mid"] - obtained["gain"])
    near = off <= 0.10 and (promised["mid"] <= 0.05 or off <= 0.30 * promised["mid"])
    return came_true, near


def percent(share):
    return f"{100 * share:.1f} %".replace("-", "−")


def main(folders):
    rows, tested, came, close, losses, kinds = [], 0, 0, 0, 0, set()
    for folder in folders:
        whole = account(folder)
        for phase in whole["phases"]:
            promised, obtained = phase["promised"], phase["obtained"]
            if not promised or not obtained:
                continue
            found = verdict(promised, obtained)
            kind = promised["simulated"] and f"`--what-if {promised['simulated']}`" or f"`{promised['code']}`"
            if found is None:
                said = "not tested: too uncertain"
            else:
                tested, came, close = tested + 1, came + found[0], close + found[1]
                kinds.add(kind)
                losses += promised["mid"] > 0 and obtained["high"] < 0
                said = ("came true" if found[0] else "**did not**") + ("" if found[1] else ", not near")
            low, high = obtained["low"], obtained["high"]
            interval = "" if low is None else f" ({percent(low)} to {percent(high)})"
            rows.append(
                f"| {whole['model']} | {whole['hardware']} | {whole['aim']} | {kind} | `{words(phase['change']) or phase['title']}` | "
                f"{percent(promised['mid'])} ({percent(promised['low'])} to {percent(promised['high'])}) | "
                f"{percent(obtained['gain'])}{interval} | {said} | {phase['verdict'].replace('_', ' ')} |"
            )
    print("| model | device | goal | promise | change | promised | obtained | | |")
    print("|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    print(
        f"\n{tested} promises of {len(kinds)} kinds were put to the test; {came} came true within their bounds, {close} were near, "
        f"{losses} of a gain turned out a loss."
    )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
