"""`apple_sdk.sh`, with a zig that only says what it is called with."""
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "apple_sdk.sh"
# As the file of a newer macOS begins.
NAMES = """--- !tapi-tbd
targets:         [ x86_64-macos, x86_64-maccatalyst, arm64e-macos, arm64e-maccatalyst,
                   arm64e.x1-macos, arm64e.x1-maccatalyst ]
exports:
  - targets:         [ x86_64-macos, arm64e-macos, arm64e.x1-macos ]
    symbols:         [ _open ]
"""


class Sdk(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.zig = self.folder / "zig"
        names = self.folder / "lib/libc/darwin/libSystem.tbd"
        names.parent.mkdir(parents=True)
        names.write_text(NAMES)
        facts = f'.zig_exe = "{self.zig}",\\n    .lib_dir = "{self.folder}/lib",\\n'
        self.zig.write_text(f'#!/bin/sh\nif [ "$1" = env ]; then printf \'{facts}\'; else echo "$@"; fi\n')
        self.zig.chmod(0o755)

    def made(self, zig=None):
        environment = {"PATH": "/usr/bin:/bin", "ZIG": str(zig or self.zig)}
        return subprocess.run([SCRIPT, self.folder / "made"], env=environment, capture_output=True, text=True)

    def test_cargo_is_told_of_compilers_a_linker_and_libraries_that_are_there(self):
        made = self.made()
        self.assertEqual(made.returncode, 0, made.stderr)
        words = dict(word.split("=", 1) for word in made.stdout.replace("'", "").split() if "=" in word)
        for name in ("SDKROOT", "CC_aarch64_apple_darwin", "AR_aarch64_apple_darwin"):
            self.assertTrue(pathlib.Path(words[name]).exists(), made.stdout)
        self.assertEqual(words["CARGO_TARGET_AARCH64_APPLE_DARWIN_LINKER"], "rust-lld")
        there = {str(one.relative_to(words["SDKROOT"])) for one in pathlib.Path(words["SDKROOT"]).rglob("*.tbd")}
        self.assertLessEqual({"usr/lib/libSystem.tbd", "usr/lib/libc.tbd", "usr/lib/libm.tbd"}, there)
        for framework in ("Security", "CoreFoundation", "Foundation"):
            self.assertIn(f"System/Library/Frameworks/{framework}.framework/{framework}.tbd", there)

    def test_names_are_those_of_the_kind_of_arm64_that_is_linked_for(self):
        self.made()
        text = (self.folder / "made/sdk/usr/lib/libSystem.tbd").read_text()
        self.assertIn("arm64-macos", text)
        self.assertNotIn(".x1", text)
        self.assertNotIn("arm64e-macos", text)
        self.assertIn("symbols:         [ _open ]", text)

    def test_the_compiler_takes_apples_words_and_gives_zigs(self):
        self.made()
        words = ["--target=arm64-apple-macosx", "-arch", "arm64", "-isysroot", "/sdk", "-mmacosx-version-min=11.0"]
        said = subprocess.run(
            [self.folder / "made/cc", "-O2", *words, "-c", "a file.c"], check=True, capture_output=True, text=True
        ).stdout
        self.assertEqual(said, "cc -target aarch64-macos.11.0 -fno-sanitize=undefined -O2 -c a file.c\n")
        said = subprocess.run([self.folder / "made/ar", "cq", "a"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(said, "ar cq a\n")

    def test_without_zig_it_says_where_that_is_had(self):
        made = self.made("no-such-zig")
        self.assertEqual(made.returncode, 1)
        self.assertIn("pip install ziglang", made.stderr)
        self.assertEqual(made.stdout, "")


if __name__ == "__main__":
    unittest.main()
