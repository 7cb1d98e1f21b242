"""RELEASING.md names the crates that are not published, and of each published one the crates that it depends on."""
import pathlib
import re
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = (ROOT / "RELEASING.md").read_text()
SHORT = "candlescope-"


def packages():
    """Each Cargo.toml of ours with a package, those apart from the workspace included."""
    for path in sorted(ROOT.rglob("Cargo.toml")):
        place = path.relative_to(ROOT).parts
        if place[0] not in ("target", "runs", "dist") and not any(part.startswith(".") for part in place):
            manifest = tomllib.loads(path.read_text())
            if manifest.get("package", {}).get("name", "").startswith("candlescope"):
                yield manifest


class Releasing(unittest.TestCase):
    def test_the_crates_that_are_not_published_are_named(self):
        kept = {one["package"]["name"] for one in packages() if one["package"].get("publish") is False}
        self.assertGreater(len(kept), 5)
        told = PAGE.split("`publish = false`")[1].split("\n\n")[0]
        self.assertEqual(set(re.findall(r"`(candlescope[\w-]*)`", told)), kept)

    def test_each_published_crate_stands_with_those_it_depends_on(self):
        needs = {}
        for manifest in packages():
            ours = [name for name in manifest.get("dependencies", {}) if name.startswith("candlescope")]
            needs[manifest["package"]["name"]] = {name.removeprefix(SHORT) for name in ours}
        rows = re.findall(r"^\| \d+ \| `([\w-]+)` \| (.*?) ?\|$", PAGE, re.MULTILINE)
        self.assertGreater(len(rows), 20)
        all_of_them = {name.removeprefix(SHORT) for name, _ in rows}
        for name, told in rows:
            listed = set(filter(None, told.removeprefix("all others but ").split(", ")))
            if told.startswith("all others but "):
                listed = all_of_them - listed - {name.removeprefix(SHORT)}
            self.assertEqual(listed, needs[name], name)


if __name__ == "__main__":
    unittest.main()
