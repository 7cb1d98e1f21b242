"""`advice.py`: the rules of docs/optimise.md, tables of pages and of studies, and that all pages say what the tables come to."""
import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import advice

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = """
## A GPU

| model | promise | change | promised | obtained | | |
|---|---|---|---|---|---|---|
| a | `graph` | `--g` | 50.0 % (40.0 % to 60.0 %) | 62.0 % (58.0 % to 66.0 %) | came true, not near | kept |
| a | `graph` | `--g` | 50.0 % (40.0 % to 60.0 %) | 52.0 % (48.0 % to 56.0 %) | came true | kept |
| a | `waits` | `--w` | 2.0 % (1.0 % to 3.0 %) | −59.0 % (−92.0 % to −46.0 %) | **did not**: a loss | rejected |

## A CPU

| model | promise | change | promised | obtained | |
|---|---|---|---|---|---|
| a | `graph` | `--g` | 10.0 % (8.0 % to 12.0 %) | 9.0 % (1.0 % to 19.0 %) | not tested: too uncertain |

| n | other |
|---|---|
| 1 | 2 |
"""


def row(promised, obtained):
    return advice.Row("d", "m", "k", "c", promised, obtained)


class Rules(unittest.TestCase):
    def test_a_promise_came_true_if_the_interval_meets_its_bounds(self):
        promised = (0.30, 0.36, 0.43)
        near = lambda mid, half: row(promised, (mid - half, mid, mid + half))  # noqa: E731
        self.assertEqual([near(0.40, 0.02).came_true(), near(0.40, 0.02).within()], [True, True])
        self.assertEqual([near(0.27, 0.04).came_true(), near(0.27, 0.04).within()], [True, False], "only the interval meets them")
        self.assertIs(near(0.20, 0.05).came_true(), False)
        self.assertIsNone(near(0.30, 0.40).came_true(), "it meets anything")
        # Wide, and outside altogether.
        self.assertIs(row((0.212, 0.247, 0.283), (0.394, 0.511, 0.556)).came_true(), False)
        self.assertIsNone(row(promised, (None, 0.36, None)).came_true(), "no interval")

    def test_nearness_and_losses(self):
        self.assertTrue(row((0.5, 0.6, 0.7), (0.5, 0.51, 0.52)).near())
        self.assertFalse(row((0.5, 0.6, 0.7), (0.4, 0.49, 0.5)).near(), "more than a tenth of the step away")
        self.assertFalse(row((0.1, 0.2, 0.3), (0.1, 0.13, 0.2)).near(), "more than 30 % of the promise away")
        self.assertFalse(row((0.1, 0.2, 0.3), (-0.1, -0.02, 0.05)).is_loss(), "it may be a gain")
        self.assertTrue(row((0.1, 0.2, 0.3), (-0.1, -0.05, -0.02)).is_loss())


class Tables(unittest.TestCase):
    def test_rows_of_a_page_are_counted_each_and_the_latest_of_each_change(self):
        rows = advice.of_page(PAGE)
        self.assertEqual([one.device for one in rows], ["A GPU"] * 3 + ["A CPU"])
        self.assertEqual(rows[2].obtained, (-0.92, -0.59, -0.46))
        every = {"rows": 4, "tested": 3, "kinds": 2, "came_true": 2, "within": 1, "near": 1, "losses": 1}
        self.assertEqual(advice.counts(rows), every)
        self.assertEqual(advice.counts(advice.latest(rows)), every | {"rows": 3, "tested": 2, "came_true": 1})
        self.assertEqual([advice.contradicted(one) for one in rows], [None] * 4)
        # A later promise of the same change replaces the one before, and what is withdrawn stands no more.
        self.assertEqual([one.kind for one in advice.standing(rows)], ["`graph`", "`waits`", "`graph`"])
        page = PAGE.replace("a loss |", "a loss; withdrawn |")
        rows = advice.of_page(page)
        self.assertEqual([one.kind for one in advice.standing(rows)], ["`graph`"] * 2)
        self.assertEqual([advice.contradicted(one) for one in rows], [None] * 4)

    def test_words_that_are_not_what_figures_say_are_named(self):
        for right, wrong in [("came true, not near", "came true"), ("**did not**: a loss", "not tested"), ("not tested", "came true")]:
            with self.subTest(wrong=wrong), tempfile.TemporaryDirectory() as folder:
                page = pathlib.Path(folder, "page.md")
                page.write_text(PAGE.replace(right, wrong, 1))
                with self.assertRaisesRegex(SystemExit, "should be"), contextlib.redirect_stdout(io.StringIO()):
                    advice.main([str(page)])

    def test_a_study_s_table_reads_as_a_page_s(self):
        phase = {
            "promised": {"low": 0.4, "mid": 0.5, "high": 0.6, "code": "what_if", "simulated": "graph"},
            "obtained": {"low": 0.48, "gain": 0.52, "high": 0.56},
            "change": {"environment": {}, "options": {"cuda-graph": "true"}},
            "title": "t",
            "verdict": "kept",
        }
        untold = phase | {"promised": None}
        account = {"model": "m", "hardware": "h", "aim": "latency", "phases": [phase, untold]}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "study.json").write_text(json.dumps({"facts": {"account": account}}))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                advice.main([folder])
        (found,) = advice.of_page(printed.getvalue())
        self.assertEqual((found.promised, found.obtained, found.words), ((0.4, 0.5, 0.6), (0.48, 0.52, 0.56), "came true"))
        self.assertEqual((found.kind, found.change), ("`--what-if graph`", "`--cuda-graph=true`"))


class Pages(unittest.TestCase):
    def test_all_pages_say_what_the_tables_come_to(self):
        text = lambda path: " ".join((ROOT / path).read_text().split())  # noqa: E731
        rows = advice.of_page((ROOT / "docs/measurements/advice.md").read_text())
        self.assertEqual([advice.contradicted(one) for one in rows], [None] * len(rows))
        every, latest = advice.counts(rows), advice.counts(advice.latest(rows))
        line = "| {tested} of {kinds} kinds | **{came_true}** | {within} | {near} | **{losses}** |"
        self.assertIn(line.format(**every), text("docs/measurements/advice.md"))
        self.assertIn(line.replace("**", "").format(**latest), text("docs/measurements/advice.md"))
        standing = "| of these what the rules still promise | {tested} of {kinds} kinds | {came_true} | {within} | {near} | {losses} |"
        self.assertIn(standing.format(**advice.counts(advice.standing(rows))), text("docs/measurements/advice.md"))
        told = "**{came_true} of {tested}** of {kinds} kinds ({within} by the stricter reading; ".format(**every)
        told += "{came_true} and {within} of {tested} without repetitions)".format(**latest)
        self.assertIn(told, text("docs/measurements/README.md"))
        told = "Of {tested} gains that were promised on an H200 and two CPU cores, [{came_true} came true]".format(**every)
        self.assertIn(told, text("LIMITATIONS.md"))


if __name__ == "__main__":
    unittest.main()
