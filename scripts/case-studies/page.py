#!/usr/bin/env python3
"""A page of docs/case-studies from what was measured.

    scripts/case-studies/page.py PAGE.md TITLE INTRODUCTION HEADING=STUDY... > NEW.md

Each STUDY is a folder that `candlescope optimise` or `candlescope journey` wrote. Of a PAGE.md that is there, the text between
`<!-- kept HEADING -->` and `<!-- /kept -->` is kept: what people say about the figures above it.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from advice import account as account_of, percent, words  # noqa: E402


def within(value):
    """A gain or a promise with its interval; a dash for none."""
    if not value:
        return "–"
    mid = value.get("mid", value.get("gain"))
    if value.get("low") is None:
        return percent(mid)
    return f"{percent(mid)} ({percent(value['low'])} to {percent(value['high'])})"


def change(phase):
    said = words(phase["change"])
    return f"`{said}`" if said else phase["title"]


def promise(promised):
    if not promised:
        return "–"
    by = f"`{promised['simulated']}`" if promised["simulated"] else f"`{promised['code']}`"
    return f"{within(promised)}, {by}"


def quality(phase):
    if phase["quality"]:
        found = phase["quality"]
        return f"KL {found['kl']:.4f}" if isinstance(found, dict) and "kl" in found else "measured"
    return {True: "same tokens", False: "other tokens", None: "–"}[phase["same_tokens"]]


def section(heading, folder, kept):
    account = account_of(folder)
    out = [f"## {heading}", ""]
    # Where a file lies on the machine that measured is no part of the command.
    command = re.sub(r"/(?:[^\s/=]+/)+([^\s/=]+)", r"\1", account["command"].strip())
    # Commands by hand stand in the heading: what else they say may be secret, and is in no study.
    by_hand = any(phase["title"].startswith("Command ") for phase in account["phases"])
    out += ["```sh", command, "```", ""] if command and not by_hand else []
    out += [f"{account['hardware']}, for {account['aim']}; {account['seconds']:.0f} s.", ""]
    out += ["| change | promised | obtained | answers | |", "|---|---|---|---|---|"]
    for phase in account["phases"]:
        said = phase["verdict"].replace("_", " ")
        why = f": {phase['why']}" if phase["why"] and phase["verdict"] != "kept" else ""
        out.append(
            f"| {change(phase)} | {promise(phase['promised'])} | {within(phase['obtained'])} | {quality(phase)} | "
            f"{'**kept**' if said == 'kept' else said}{why} |"
        )
    whole = account["whole"]
    if whole and whole["obtained"]:
        gain = whole["obtained"]["gain"]
        out += ["", f"All that was kept together: {within(whole['obtained'])}, {1 / (1 - gain):.1f} times as fast."]
    left = account["by_hand"]
    if left:
        out += ["", "Left for people: " + "; ".join(f"{hand.get('title') or hand.get('code')}" for hand in left[:5]) + "."]
    return out + room_for_words(heading, kept)


def room_for_words(heading, kept):
    return ["", f"<!-- kept {heading} -->", kept.get(heading, ""), "<!-- /kept -->", ""]


def kept_of(page):
    """What people wrote below the headings of a page that is there."""
    path = pathlib.Path(page)
    before = path.read_text() if path.exists() else ""
    return {name: text.strip() for name, text in re.findall(r"<!-- kept (.*?) -->\n(.*?)<!-- /kept -->", before, re.S)}


def main(page, title, introduction, studies):
    kept = kept_of(page)
    out = [f"# {title}", "", introduction, ""]
    for study in studies:
        heading, folder = study.rsplit("=", 1)
        out += section(heading, folder, kept)
    print("\n".join(out).rstrip() + "\n", end="")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
