"""What GitHub runs is what somebody looked at: every action by its commit, no token left in a checkout, none that may write where
nothing is published, no file changed on its way to Windows; and what a release is made of is checked before. `python3 -m unittest discover -s scripts`."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Pages show how our own action is used: it has no commit of a release yet.
OURS = "candlescope/candlescope/.github/actions/"
USED = re.compile(r"^\s*(?:- )?uses: *(?P<what>[^@\s]+)@(?P<at>\S+)(?P<rest>.*)$")


def used():
    """Each action that is used, with where: (file and line, action, commit, what follows, the two lines after it)."""
    folder = ROOT / ".github"
    for path in sorted([*folder.rglob("*.yml"), *folder.rglob("*.md")]):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            found = USED.match(line)
            if found and not found["what"].startswith(OURS):
                at = f"{path.relative_to(ROOT)}:{number + 1}"
                yield at, found["what"], found["at"], found["rest"], lines[number + 1 : number + 3]


class Workflows(unittest.TestCase):
    def test_every_action_is_named_by_its_commit_and_says_its_version(self):
        actions = list(used())
        self.assertGreater(len(actions), 10)
        for at, _, commit, rest, _ in actions:
            self.assertRegex(commit, r"^[0-9a-f]{40}$", at)
            self.assertRegex(rest, r"^ # v\d+\.\d+\.\d+$", at)

    def test_one_action_has_one_commit(self):
        commits = {}
        for at, action, commit, _, _ in used():
            self.assertEqual(commits.setdefault(action, commit), commit, at)

    def test_no_checkout_of_ours_keeps_the_token(self):
        checkouts = [one for one in used() if one[1] == "actions/checkout" and "/workflows/" in one[0]]
        self.assertGreater(len(checkouts), 5)
        for at, _, _, _, after in checkouts:
            self.assertEqual([line.strip() for line in after], ["with:", "persist-credentials: false"], at)

    def test_a_workflow_may_read_and_only_what_publishes_may_write(self):
        writes = {}
        for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
            text = path.read_text()
            self.assertIn("\npermissions:\n  contents: read\n", text, path.name)
            writes[path.stem] = re.findall(r"^      ([\w-]+): write$", text, re.MULTILINE)
            self.assertEqual(text.count(": write"), len(writes[path.stem]), path.name)
        self.assertEqual(
            {name: may for name, may in writes.items() if may},
            {"pages": ["pages", "id-token"], "release": ["contents"]},
        )


class Archives(unittest.TestCase):
    def test_what_a_release_is_made_on_has_checked_it_before(self):
        workflow = (ROOT / ".github/workflows/ci.yml").read_text()
        checked = re.search(r"^  elsewhere:.*?^        os: \[(.*?)\]$", workflow, re.MULTILINE | re.DOTALL)[1].split(", ")
        made = re.findall(r"- { os: ([\w.-]+), targets: ", (ROOT / ".github/workflows/release.yml").read_text())
        self.assertGreater(len(made), 3)
        # The tests run on the first one's kind.
        self.assertEqual(sorted(checked), sorted(made[1:]), made)

    def test_cross_compilers_are_the_same_for_a_check_and_for_an_archive(self):
        compilers = re.findall(r"^C_COMPILER_(\S+) = (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        self.assertGreater(len(compilers), 1)
        script = (ROOT / "scripts/dist.sh").read_text()
        for target, compiler in compilers:
            self.assertIn(f"\n    {target}) echo {compiler} ", script)


class Files(unittest.TestCase):
    def test_git_changes_no_end_of_a_line(self):
        if not (ROOT / ".git").exists():
            self.skipTest("not a checkout")
        files = ["Makefile", "scripts/dist.sh", "tests/fuzz/corpus/http-request/0"]
        said = subprocess.run(
            ["git", "check-attr", "text", "--", *files], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()
        self.assertEqual(said, [f"{file}: text: unset" for file in files])


if __name__ == "__main__":
    unittest.main()
