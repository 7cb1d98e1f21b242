"""`macho.py`: what macOS would load passes, and each thing that it would not is told."""
import hashlib
import struct
import unittest

import macho

SYSTEM = "/usr/lib/libSystem.B.dylib"


def program(library=SYSTEM, signed=True, ordinal=1, start=True, processor=macho.ARM64, more=b""):
    """A program of two pages that takes one name from a library, as a linker lays it out."""
    path = library.encode() + b"\0" * (8 - len(library) % 8)
    page, code = 4096, 8192
    loaded = [
        struct.pack("<2I16s4Q4I", macho.SEGMENT, 72, b"__TEXT", 0, code, 0, code, 5, 5, 0, 0),
        struct.pack("<2I4I", macho.BUILD_VERSION, 24, 1, 11 << 16, 11 << 16, 0),
        struct.pack("<2I4I", macho.LOAD_DYLIB, 24 + len(path), 24, 0, 0, 0) + path,
        struct.pack("<2I4I", macho.SYMTAB, 24, 5000, 1, 5100, 16),
    ]
    if start:
        loaded.append(struct.pack("<2I2Q", macho.MAIN, 24, 4096, 0))
    if more:
        loaded.append(more)
    if signed:
        loaded.append(struct.pack("<4I", macho.SIGNATURE, 16, code, 20 + 44 + 64))
    commands = b"".join(loaded)
    data = bytearray(code)
    data[:32] = struct.pack("<8I", 0xFEEDFACF, processor, 0, macho.EXECUTE, len(loaded), len(commands), macho.PIE, 0)
    data[32 : 32 + len(commands)] = commands
    data[5000:5016] = struct.pack("<IBBHQ", 1, 1, 0, ordinal << 8, 0)
    data[5100:5108] = b"\0_open\0\0"
    if not signed:
        return data
    pages = b"".join(hashlib.sha256(data[at : at + page]).digest() for at in (0, page))
    facts = macho.DIRECTORY, 44 + len(pages), 0x20400, macho.AD_HOC, 44, 0, 0, 2, code, 32, 2, 0, 12, 0
    directory = struct.pack(">9I4BI", *facts) + pages
    return data + struct.pack(">5I", macho.SIGNED, 20 + len(directory), 1, 0, 20) + directory


class Programs(unittest.TestCase):
    def refused(self, why, data):
        with self.assertRaisesRegex(macho.Broken, why):
            macho.check(bytes(data))

    def test_one_that_macos_loads_is_told_in_words(self):
        self.assertEqual(
            macho.check(bytes(program())),
            "Mach-O for arm64, macOS 11.0 or newer; 1 names of libSystem.B.dylib; the signature fits",
        )

    def test_a_byte_that_was_changed_after_signing_is_found_in_its_page(self):
        for at, page in ((3000, 0), (8000, 1)):
            data = program()
            data[at] ^= 1
            self.refused(f"page {page} is not the one that was signed", data)

    def test_one_without_a_signature_or_with_more_behind_it_is_refused(self):
        self.refused("it is not signed", program(signed=False))
        self.refused("its signature is not its end", program() + b"more")

    def test_a_library_of_somebody_and_a_name_of_no_library_are_refused(self):
        self.refused("linked with /opt/homebrew/lib/libzstd.dylib", program(library="/opt/homebrew/lib/libzstd.dylib"))
        for ordinal in (0, 2, 0xFE):
            self.refused("_open is of no library", program(ordinal=ordinal))
        weak = struct.pack("<6I", 0x80000018, 24, 24, 0, 0, 0)
        self.refused("a library that is weak", program(more=weak))

    def test_programs_of_others_and_parts_of_one_are_refused(self):
        self.refused("no executable for arm64", program(processor=0x01000007))
        self.refused("it is no Mach-O file", b"\x7fELF" + b"\0" * 100)
        self.refused("has no start", program(start=False))
        self.refused("its end is missing", program()[:8000])


if __name__ == "__main__":
    unittest.main()
