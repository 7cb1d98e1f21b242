"""`check_inputs.py`: each input that cannot be meant is named, with what to write.
Run: python3 -m unittest discover -s .github/actions/gate
"""
import contextlib
import io
import os
import unittest
from unittest import mock

import check_inputs

GOOD = {
    "RUNS": "runs\n", "BASELINE": ".candlescope/baseline", "PROGRAM": "candlescope", "OPTIONS": "", "NAME": "gate",
    "UNDECIDED": "pass",
}


def said(**inputs):
    """The exit status, and what was printed."""
    with mock.patch.dict(os.environ, {**GOOD, **inputs}), contextlib.redirect_stdout(io.StringIO()) as out:
        return check_inputs.main(), out.getvalue()


class Inputs(unittest.TestCase):
    def wrong(self, name, holds, remedy, **inputs):
        with self.subTest(inputs):
            status, text = said(**inputs)
            self.assertEqual(status, 3)
            self.assertEqual(text.count("\n"), 1)
            value = "`" + holds + "`" if holds else "it is empty"
            self.assertTrue(text.startswith(f"::error title=candlescope gate::input `{name}`: {value}: "), text)
            self.assertIn(remedy, text)

    def test_what_the_pages_show_is_right(self):
        fine = (
            "", "\n", "--within=4\n", "  --within=4\n", "--within\n3\n", "--within=2.5%\n--floor=.5", "--alpha=1e0",
            "--allow=dtype,batch", "--limit=steps=10_000_000,names=5\n--limit\nfiles=1", "--html=out.html",
            "--html\npage of today.html", "--of-a-later-version=x", "--of-a-later-version\nx\n--flag",
        )
        for options in fine:
            self.assertEqual(said(OPTIONS=options), (0, ""), options)
        self.assertEqual(said(RUNS="a\n\n b c\n", NAME="gpu-1.x_y", UNDECIDED="fail"), (0, ""))

    def test_percentages(self):
        for option in ("--within", "--alpha", "--false-discoveries", "--floor"):
            for value in ("much", "0", "100", "-3", "nan", "inf", "1e400", "3,5", "1_0", "0x3", "٣"):
                remedy = f"above 0 and below 100 is wanted, such as {option}=3"
                self.wrong("options", f"{option}={value}", remedy, OPTIONS=f"{option}={value}")
        self.wrong("options", "--within=-3", "a percentage", OPTIONS="--within\n-3")
        self.wrong("options", "--within=", "a value is wanted", OPTIONS="--within=")
        self.wrong("options", "--floor", "a value is wanted: --floor=…", OPTIONS="--within=3\n--floor\n")

    def test_counts(self):
        not_whole = ("steps", "steps=", "steps=many", "steps=-1", "steps=1.5", "steps=1e9", "steps=1,names=x")
        for value in (*not_whole, f"steps={1 << 64}", "steps=" + "9" * 5000):
            shown = f"--limit={value}"
            shown = shown if len(shown) <= 80 else shown[:79] + "…"
            remedy = "a whole number are wanted, such as --limit=steps=10000000"
            self.wrong("options", shown, remedy, OPTIONS=f"--limit={value}")

    def test_options_that_do_not_belong_there(self):
        self.wrong("options", "--within 3", "one word a line is wanted, such as --within=3", OPTIONS="--within 3")
        self.wrong("options", "runs/a", "the input `runs`", OPTIONS="runs/a")
        self.wrong("options", "--", "the input `runs`", OPTIONS="--")
        self.wrong("options", "--json", "leave it out", OPTIONS="--within=3\n--json")
        self.wrong("options", "--baseline=x", "the input `baseline`", OPTIONS="--baseline=x")
        self.wrong("options", "--save x", "in a step of its own", OPTIONS="--save x")
        self.wrong("options", "--prometheus", "in a step of its own", OPTIONS="--prometheus\nhttp://x")

    def test_the_other_inputs(self):
        self.wrong("runs", "", "name a run", RUNS=" \n\n")
        self.wrong("baseline", "", "the baseline's directory in one line", BASELINE="")
        self.wrong("baseline", "a b", "in one line", BASELINE="a\nb")
        self.wrong("candlescope", "", "the program in one line", PROGRAM=" ")
        self.wrong("undecided", "Fail", "`pass` or `fail` is wanted", UNDECIDED="Fail")
        self.wrong("undecided", "", "`pass` or `fail` is wanted", UNDECIDED="")
        for name in ("a b", "a -->", "a--b", "x" * 65):
            self.wrong("name", name, "letters, digits", NAME=name)

    def test_a_value_is_no_command_of_the_workflow(self):
        _, text = said(UNDECIDED="a\n::add-mask::x\r\n100%0A\x1b[2J")
        self.assertEqual(text.count("\n"), 1)
        self.assertEqual(text.count("\r"), 0)
        self.assertIn("`a ::add-mask::x  100%250A [2J`", text)


if __name__ == "__main__":
    unittest.main()
