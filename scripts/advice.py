#!/usr/bin/env python3
"""What became of promises: a table of those that optimisations put to the test, and counts, for docs/measurements/advice.md.

    scripts/advice.py STUDY... > TABLE.md           a table of the promises of these studies, and the counts
    scripts/advice.py docs/measurements/advice.md   the counts, from the tables of the page; fails where the words of a row
                                                    are not what its figures say

Each STUDY is a folder that `candlescope optimise` wrote. In a page, a table counts if its columns include `promised` and
`obtained`; what stands after `obtained` are the words of the row. A page has figures to a tenth of a percent, and a study has all
digits: a row that is decided by less can differ.

The rules of the test are those of docs/optimise.md:

    came true   the interval of what was obtained meets the bounds of the promise: they have a value in common
    within      stricter: what was obtained, the middle of its interval, lies within the bounds itself
    not tested  the interval meets the bounds, and is so wide that it would meet almost anything
    near        what was obtained is within 10 % of the step before, and within 30 % of the promise where that is above 5 %
    a loss      a gain was promised, and the whole interval is below 0

All of them are counted three times: every row; of each change of a model on a device only the last one, as the ledger does; and of
these the ones that stand: a row that says *withdrawn* is of a promise that the rules make no more, and where two findings promised the
same change, the later one replaced the other.
"""
import dataclasses
import json
import pathlib
import re
import sys

RESOLVED, RESOLVED_PART = 0.05, 0.3  # analysis/figures/src/advice/record.rs
DID_NOT, NOT_TESTED = "**did not**", "not tested"


@dataclasses.dataclass
class Row:
    """A promise and what came of it; `promised` and `obtained` are (low, mid, high), shares of the step."""

    device: str
    model: str
    kind: str
    change: str
    promised: tuple
    obtained: tuple
    words: str = ""
    line: int = 0

    def came_true(self):
        """None where the result tests nothing."""
        (low, mid, high), (least, _, most) = self.promised, self.obtained
        if least is None:
            return None
        meet = least <= high and most >= low
        # A wide interval that meets the bounds would meet anything; one that does not says that they are wrong.
        return None if meet and (most - least) / 2 > max(RESOLVED, RESOLVED_PART * abs(mid)) else meet

    def within(self):
        return self.promised[0] <= self.obtained[1] <= self.promised[2]

    def near(self):
        mid = self.promised[1]
        off = abs(mid - self.obtained[1])
        return off <= 0.10 and (mid <= 0.05 or off <= 0.30 * mid)

    def is_loss(self):
        return self.promised[1] > 0 and self.obtained[2] is not None and self.obtained[2] < 0

    def said(self):
        """What a row of the table says of it."""
        came = self.came_true()
        if came is None:
            return f"{NOT_TESTED}: too uncertain"
        if came:
            return "came true" + ("" if self.near() else ", not near")
        which = "a loss" if self.is_loss() else f"too {'much' if self.obtained[1] < self.promised[1] else 'little'} was promised"
        return f"{DID_NOT}: {which}" + (", but near" if self.near() else "")


def account(folder):
    """What `candlescope optimise` or `journey` wrote into a study: facts, phases, what is left."""
    return json.loads((pathlib.Path(folder) / "study.json").read_text())["facts"]["account"]


def of_studies(folders):
    """Rows of studies, each with the rest of the cells that its row of the table has."""
    for folder in folders:
        whole = account(folder)
        for phase in whole["phases"]:
            promised, obtained = phase["promised"], phase["obtained"]
            if not promised or not obtained:
                continue
            kind = promised["simulated"] and f"`--what-if {promised['simulated']}`" or f"`{promised['code']}`"
            row = Row(
                device=whole["hardware"],
                model=whole["model"],
                kind=kind,
                change=words(phase["change"]) or phase["title"],
                promised=(promised["low"], promised["mid"], promised["high"]),
                obtained=(obtained["low"], obtained["gain"], obtained["high"]),
            )
            yield row, whole["aim"], phase["verdict"].replace("_", " ")


def words(change):
    pairs = list(change["environment"].items()) + [("--" + name, value) for name, value in change["options"].items()]
    return " ".join(f"without {name}" if value is None else f"{name}={value}" for name, value in pairs)


def of_page(text):
    """Rows of the tables of a page. Its sections are the devices."""
    rows, device, columns = [], "", None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            device, columns = line[3:].strip(), None
        if not line.startswith("|"):
            columns = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if columns is None:
            columns = cells
        elif "promised" in columns and "obtained" in columns and not set(line) <= set("|-: "):
            cell = lambda name: cells[columns.index(name)]  # noqa: E731
            said = cells[columns.index("obtained") + 1]
            row = Row(device, cell("model"), cell("promise"), cell("change"), shares(cell("promised")), shares(cell("obtained")), said, number)
            rows.append(row)
    return rows


def shares(cell):
    """`60.7 % (55.4 % to 73.0 %)` as (low, mid, high)."""
    found = [float(number.replace("−", "-")) / 100 for number in re.findall(r"([-−]?[0-9.]+) %", cell)]
    if len(found) not in (1, 3):
        raise ValueError(f"`{cell}` is no share with its bounds")
    mid, low, high = found if len(found) == 3 else (found[0], None, None)
    return low, mid, high


def contradicted(row):
    """What a row should say, where its words are not that."""
    right, said = row.said(), row.words
    begin = next(begin for begin in ("came true", DID_NOT, NOT_TESTED) if right.startswith(begin))
    agrees = said.startswith(begin) and (begin != "came true" or ("not near" in said) == ("not near" in right))
    return None if agrees and ("a loss" in said) == ("a loss" in right) else right


def latest(rows):
    """Of each change of a model on a device, the last row: the ledger counts so, too."""
    return list({(row.device, row.model.lower(), row.kind, row.change): row for row in rows}.values())


def standing(rows):
    """What the rules still promise: of each change of a model on a device the last row, whoever promised it, without those withdrawn."""
    last = {(row.device, row.model.lower(), row.change): row for row in rows}
    return [row for row in last.values() if "withdrawn" not in row.words]


def counts(rows):
    tested = [row for row in rows if row.came_true() is not None]
    count = lambda of: sum(1 for row in tested if of(row))  # noqa: E731
    return {
        "rows": len(rows),
        "tested": len(tested),
        "kinds": len({row.kind for row in tested}),
        "came_true": count(Row.came_true),
        "within": count(Row.within),
        "near": count(Row.near),
        "losses": count(Row.is_loss),
    }


def in_words(head, rows):
    found = counts(rows)
    return (
        "{head}: {rows} rows; {tested} promises of {kinds} kinds were put to the test; {came_true} came true (their bounds and the "
        "interval of what was obtained meet), in {within} what was obtained is within the bounds itself, {near} were near, {losses} of a "
        "gain turned out a loss."
    ).format(head=head, **found)


def percent(share):
    return f"{100 * share:.1f} %".replace("-", "−")


def bounds(low, mid, high):
    return percent(mid) + ("" if low is None else f" ({percent(low)} to {percent(high)})")


def main(paths):
    if len(paths) == 1 and pathlib.Path(paths[0]).is_file():
        rows = of_page(pathlib.Path(paths[0]).read_text())
        wrong = [f"{paths[0]}:{row.line}: `{row.words}` should be: {right}" for row in rows if (right := contradicted(row))]
    else:
        found, wrong = list(of_studies(paths)), []
        rows = [row for row, _, _ in found]
        print("| model | device | goal | promise | change | promised | obtained | | |\n|---|---|---|---|---|---|---|---|---|")
        for row, aim, verdict in found:
            print(
                f"| {row.model} | {row.device} | {aim} | {row.kind} | `{row.change}` | {bounds(*row.promised)} | {bounds(*row.obtained)} | "
                f"{row.said()} | {verdict} |"
            )
        print()
    print(in_words("Every row", rows))
    print(in_words("Of each change the latest", latest(rows)))
    print(in_words("Of those what rules still promise", standing(rows)))
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(print(__doc__))
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
