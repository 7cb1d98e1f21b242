"""`case-studies/page.py`: a page from a study, and what people wrote below a heading is kept. Nothing else runs it without measuring."""
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent / "case-studies"
sys.path.insert(0, str(HERE))
import page  # noqa: E402

PHASE = {
    "promised": {"low": 0.4, "mid": 0.5, "high": 0.6, "code": "weight_streaming", "simulated": None},
    "obtained": {"low": 0.48, "gain": 0.52, "high": 0.56},
    "change": {"environment": {}, "options": {"quantize": "q8_0"}},
    "title": "Fewer bits",
    "verdict": "kept",
    "why": None,
    "quality": {"kl": 0.0064},
    "same_tokens": None,
}
ACCOUNT = {
    "model": "m",
    "hardware": "two cores",
    "aim": "latency",
    "command": "candlescope profile --model=/some/where/m.gguf",
    "seconds": 61.2,
    "phases": [PHASE, PHASE | {"promised": None, "obtained": None, "verdict": "not_tried", "why": "no time", "quality": None}],
    "whole": None,
    "by_hand": [],
}


class Pages(unittest.TestCase):
    def test_a_study_becomes_a_section_and_words_of_people_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            study, old = pathlib.Path(folder, "study"), pathlib.Path(folder, "page.md")
            study.mkdir()
            (study / "study.json").write_text(json.dumps({"facts": {"account": ACCOUNT}}))
            old.write_text("<!-- kept One -->\nWhat somebody wrote.\n<!-- /kept -->\n")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                page.main(str(old), "Title", "Introduction.", [f"One={study}"])
        made = printed.getvalue()
        self.assertIn("| `--quantize=q8_0` | 50.0 % (40.0 % to 60.0 %), `weight_streaming` | 52.0 % (48.0 % to 56.0 %) | KL 0.0064 | **kept** |", made)
        self.assertIn("| – | – | – | not tried: no time |", made)
        self.assertIn("--model=m.gguf", made, "without the folder")
        self.assertIn("<!-- kept One -->\nWhat somebody wrote.\n<!-- /kept -->", made)

    def test_every_script_starts(self):
        for script in sorted(HERE.glob("*.py")):
            with self.subTest(script=script.name):
                # Without arguments each says how it is used; one that cannot import what it needs ends with a traceback.
                ended = subprocess.run([sys.executable, script], capture_output=True, text=True)
                self.assertNotIn("Traceback", ended.stderr)

    def test_every_shell_script_can_be_read(self):
        for script in sorted(HERE.glob("*.sh")):
            with self.subTest(script=script.name):
                self.assertEqual(subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr, "")


if __name__ == "__main__":
    unittest.main()
