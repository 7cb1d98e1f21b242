"""`dist.sh` with a cargo that builds nothing: what is packed, and that nothing of others is removed. The folder for archives
by itself, and links that are made addresses."""
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import absolute_links
import book_links

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOST = "x86_64-unknown-linux-gnu"
NAME = f"candlescope-0.1.0-{HOST}"
# It answers as the command does, as far as `dist.sh` asks.
PROGRAM = """#!/bin/sh
case $1 in
  --version) echo "candlescope 0.1.0" ;;
  overview) echo "embedded on a CPU" ;;
  query) echo '{"n": 1}' ;;
  man) mkdir -p "$3" && echo page > "$3/candlescope.1" ;;
  completions) echo "$2" ;;
esac
"""
# A bill of materials stands beside each Cargo.toml of the workspace.
CARGO = f"""#!/bin/sh
case "$*" in
  *candlescope-cli*) made=$CARGO_TARGET_DIR/{HOST}/dist/candlescope ;;
  *candlescope-inject*) made=$CARGO_TARGET_DIR/{HOST}/dist/libcandlescope_inject.so ;;
  cyclonedx*)
    while [ "$1" != --override-filename ]; do shift; done
    for crate in cli work; do echo '{{"bomFormat": "CycloneDX"}}' > "$crate/$2.json"; done
    exit ;;
esac
mkdir -p "$(dirname "$made")" && cp program "$made"
"""
TOOLS = {
    "cargo": CARGO,
    "cargo-cyclonedx": "#!/bin/sh\n",
    "rustc": f"#!/bin/sh\necho 'host: {HOST}'\n",
    "rustup": f"#!/bin/sh\necho {HOST}\n",
}


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


class Checkout(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.checkout, self.home = self.folder / "checkout", self.folder / "home"
        for made in [self.checkout / "cli", self.checkout / "work", self.checkout / "scripts", self.home]:
            made.mkdir(parents=True)
        for script in ["dist.sh", "dist_folder.sh", "absolute_links.py", "book_links.py"]:
            shutil.copy(ROOT / "scripts" / script, self.checkout / "scripts")
        for page in ["README.md", "LIMITATIONS.md", "CHANGELOG.md", "LICENSE-MIT"]:
            shutil.copy(ROOT / page, self.checkout)
        (self.checkout / "Cargo.toml").write_text('[workspace.package]\nversion = "0.1.0"\n')
        program(self.checkout / "program", PROGRAM)

    def run_in(self, *command, **environment):
        told = {"PATH": f"{self.folder}/tools:/usr/bin:/bin", "HOME": str(self.home), **environment}
        return subprocess.run(command, cwd=self.checkout, env=told, capture_output=True, text=True)


@unittest.skipUnless(os.name == "posix", "a shell's script")
class Dist(Checkout):
    def setUp(self):
        super().setUp()
        (self.folder / "tools").mkdir()
        for name, text in TOOLS.items():
            program(self.folder / "tools" / name, text)

    def dist(self, **environment):
        told = {"CARGO_TARGET_DIR": str(self.checkout / "built"), "SOURCE_DATE_EPOCH": "1000000000", **environment}
        return self.run_in("scripts/dist.sh", HOST, **told)

    def test_an_archive_has_the_program_and_pages_whose_links_lead_somewhere(self):
        done = self.dist()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(os.listdir(self.checkout / "dist")), ["SHA256SUMS", f"{NAME}.tar.gz"])
        with tarfile.open(self.checkout / "dist" / f"{NAME}.tar.gz") as archive:
            names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
            pages = [name for name in names if name.endswith(".md")]
            texts = [archive.extractfile(f"{NAME}/{page}").read().decode() for page in pages]
        wanted = {"candlescope", "libcandlescope_inject.so", "candlescope.cdx.json", "LICENSE-MIT", "man/man1/candlescope.1"}
        self.assertLessEqual(wanted | {"completions/_candlescope", "completions/candlescope.ps1"}, names)
        self.assertEqual(sorted(pages), ["CHANGELOG.md", "LIMITATIONS.md", "README.md"])
        links = [found[1] for text in texts for found in book_links.LINK.findall(text)]
        self.assertGreater(len(links), 50)
        self.assertEqual([link for link in links if not book_links.is_address(link)], [])

    def test_files_of_others_stay_whatever_they_are_called(self):
        kept = [self.checkout / "sbom.json", self.checkout / "work/sbom.json", self.checkout / "built/sbom.json"]
        for path in kept:
            path.parent.mkdir(exist_ok=True)
            path.write_text("of somebody")
        self.assertEqual(self.dist().returncode, 0)
        self.assertEqual([path.read_text() for path in kept], ["of somebody"] * 3)
        self.assertEqual(list(self.checkout.rglob("bill-of-dist-*")), [])

    def test_a_folder_that_is_somebodys_is_refused_before_anything_is_built(self):
        done = self.dist(OUT=".")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("error: OUT=.: it is, or holds,", done.stderr)
        self.assertTrue((self.checkout / "Cargo.toml").exists())
        self.assertFalse((self.checkout / "built").exists())


@unittest.skipUnless(os.name == "posix", "a shell's script")
class Folder(Checkout):
    def emptied(self, out):
        return self.run_in("scripts/dist_folder.sh", str(out))

    def test_an_absent_an_empty_and_one_of_an_earlier_start_are_taken(self):
        out = self.folder / "a folder"
        for left in [[], [], [f"{NAME}.tar.gz", f"candlescope-1.2.3-rc.1-{HOST}/candlescope", "SHA256SUMS"]]:
            for name in left:
                (out / name).parent.mkdir(exist_ok=True)
                (out / name).write_text("made by dist.sh")
            done = self.emptied(out)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(os.listdir(out), [])

    def test_what_holds_anything_else_stays_as_it_is(self):
        out = self.folder / "out"
        for other in ["notes.txt", ".hidden", "candlescope-demo", "candlescope-0.1.0"]:
            out.mkdir()
            for name in [other, f"{NAME}.tar.gz"]:
                (out / name).write_text("of somebody")
            done = self.emptied(out)
            self.assertNotEqual(done.returncode, 0, other)
            self.assertIn(f"it holds {other}, which dist.sh did not make", done.stderr)
            self.assertEqual(len(os.listdir(out)), 2, other)
            shutil.rmtree(out)

    def test_the_checkout_the_home_what_holds_them_a_link_and_a_file_are_refused(self):
        (self.folder / "link").symlink_to(self.home)
        (self.folder / "file").write_text("of somebody")
        for out in [".", "..", "/", self.checkout, self.home, self.folder, self.folder / "link", self.folder / "file"]:
            done = self.emptied(out)
            self.assertNotEqual(done.returncode, 0, out)
            self.assertTrue(done.stderr.startswith(f"error: OUT={out}: it is"), done.stderr)
        self.assertTrue((self.checkout / "scripts/dist.sh").exists() and self.home.exists())


class Links(unittest.TestCase):
    def test_links_by_path_become_addresses(self):
        at = book_links.REPOSITORY
        for link, expected in [
            ("docs/gpu.md#cost", f"{at}/blob/main/docs/gpu.md#cost"),
            ("docs/schemas", f"{at}/tree/main/docs/schemas"),
            ("#here", "#here"),
            ("https://example.org/a", "https://example.org/a"),
        ]:
            self.assertEqual(absolute_links.address(link, ""), expected)
        self.assertEqual(absolute_links.address("../SECURITY.md", "docs"), f"{at}/blob/main/SECURITY.md")

    def test_code_is_left_alone_and_the_book_has_its_own_links(self):
        text = "[a](b.md)\n```sh\n[c](d.md)\n```\n"
        self.assertEqual(book_links.relinked(text, str.upper), "[a](B.MD)\n```sh\n[c](d.md)\n```\n")
        self.assertEqual(book_links.page("---\nname: x\n---\n[a](../README.md)", "guides"), "[a](../index.md)")


if __name__ == "__main__":
    unittest.main()
