#!/usr/bin/env python3
"""Looks at the action's inputs before anything runs, and names the one that cannot be meant, with what to write.

The inputs are environment variables (action.yml). Options of `candlescope gate` that are not known here are the
program's to judge. What is wrong becomes an error of the workflow, which GitHub shows above the log; the exit status
is 3, as for every other job without an answer.
"""
import os
import re
import sys

import comment

PERCENTAGES = ("--within", "--alpha", "--false-discoveries", "--floor")
TAKE_A_VALUE = (*PERCENTAGES, "--allow", "--html", "--limit")
SET_BY_THE_ACTION = {
    "--json": "leave it out: the action reads the gate's answer itself",
    "--baseline": "use the input `baseline`",
    "--save": "save a baseline in a step of its own, with `candlescope gate RUNS --save DIR`",
    "--prometheus": "hold a live server against its past in a step of its own: this action has runs and a baseline",
}
# Limits are counts of 64 bits.
LARGEST_COUNT = (1 << 64) - 1


class Wrong(Exception):
    """An input that cannot be meant: which one, what it holds, what to write."""

    def __init__(self, name, value, remedy):
        shown = "".join(c if c.isprintable() else " " for c in value).strip()
        shown = shown if len(shown) <= 80 else shown[:79] + "…"
        super().__init__(f"input `{name}`: " + (f"`{shown}`: " if shown else "it is empty: ") + remedy)


def words(text):
    """The lines that are not blank, without spaces around them, as action.yml passes them on."""
    return [line.strip() for line in text.split("\n") if line.strip()]


def percentage(option, value):
    """Above 0 and below 100; the program takes no others."""
    number = value.rstrip("%").strip()
    digits = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", number, re.ASCII)
    if not digits or not 0 < float(number) < 100:
        raise Wrong("options", f"{option}={value}", f"a percentage above 0 and below 100 is wanted, such as {option}=3")


def limit(value):
    """Names with a count, joined by commas; which names there are is the program's to say."""
    for part in filter(str.strip, value.split(",")):
        count = part.partition("=")[2].strip().replace("_", "")
        if not re.fullmatch(r"[0-9]{1,20}", count) or int(count) > LARGEST_COUNT:
            remedy = "a name and a whole number are wanted, such as --limit=steps=10000000"
            raise Wrong("options", f"--limit={value}", remedy)


def pairs(text):
    """Options with their values; a value may be a line of its own."""
    rest = words(text)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        named = option.split()[0] if option else ""
        if named in SET_BY_THE_ACTION:
            raise Wrong("options", word, SET_BY_THE_ACTION[named])
        if not named.startswith("-") or named == "--":
            raise Wrong("options", word, "options begin with two dashes and a name; runs belong into the input `runs`")
        if named != option:
            raise Wrong("options", word, f"one word a line is wanted, such as {named}={word[len(named):].strip(' =')}")
        if not equals and rest and (option in TAKE_A_VALUE or not rest[0].startswith("-")):
            value = rest.pop(0)
        if option in TAKE_A_VALUE and not value:
            raise Wrong("options", word, f"a value is wanted: {option}=…")
        yield option, value


def check_options(text):
    for option, value in pairs(text):
        if option in PERCENTAGES:
            percentage(option, value)
        elif option == "--limit":
            limit(value)


def check(inputs):
    """Raises `Wrong` at the first input that cannot be meant."""
    if not words(inputs["RUNS"]):
        raise Wrong("runs", "", "name a run, or a folder of runs, one a line")
    one_line = (("baseline", "BASELINE", "the baseline's directory"), ("candlescope", "PROGRAM", "the program"))
    for name, variable, what in one_line:
        if len(words(inputs[variable])) != 1:
            raise Wrong(name, inputs[variable], f"name {what} in one line, or leave the input out")
    if not comment.is_name(inputs["NAME"]):
        raise Wrong("name", inputs["NAME"], comment.NAMES)
    if inputs["UNDECIDED"] not in ("pass", "fail"):
        raise Wrong("undecided", inputs["UNDECIDED"], "`pass` or `fail` is wanted")
    check_options(inputs["OPTIONS"])


def annotation(text):
    """A workflow command: nothing in the text can end it or begin another one."""
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, code)
    return f"::error title=candlescope gate::{text}"


def main():
    names = ("RUNS", "BASELINE", "PROGRAM", "OPTIONS", "NAME", "UNDECIDED")
    try:
        check({name: os.environ.get(name, "") for name in names})
    except Wrong as wrong:
        print(annotation(str(wrong)))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
