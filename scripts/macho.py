#!/usr/bin/env python3
"""Whether a program is one that macOS on Apple's processors would load, as far as that can be said elsewhere: a whole
executable for arm64, linked with nothing but libraries of the system, each foreign name with the library that it is taken
from, and with a signature that fits every page, because these processors start nothing else. The program is not run.

Usage: scripts/macho.py PROGRAM
"""

import hashlib
import struct
import sys
from pathlib import Path

ARM64, EXECUTE, PIE = 0x0100000C, 2, 0x200000
SYMTAB, LOAD_DYLIB, SEGMENT, SIGNATURE, BUILD_VERSION, MAIN = 0x2, 0xC, 0x19, 0x1D, 0x32, 0x80000028
# Libraries that may be absent, that are shown to others, and that start with the process: none of them is ours.
OTHER_DYLIBS = {0x80000018: "weak", 0x8000001F: "re-exported", 0x20: "lazy"}
SIGNED, DIRECTORY, AD_HOC = 0xFADE0CC0, 0xFADE0C02, 0x2
OF_THE_SYSTEM = ("/usr/lib/", "/System/Library/")


class Broken(Exception):
    """Why macOS would not load the program."""


def text(data, at):
    """The text at `at`, which ends with a zero."""
    return data[at : data.index(0, at)].decode()


def commands(data):
    """Each load command: its number and its bytes."""
    if len(data) < 32 or struct.unpack_from("<I", data)[0] != 0xFEEDFACF:
        raise Broken("it is no Mach-O file of 64 bits")
    _, processor, _, kind, count, size, flags, _ = struct.unpack_from("<8I", data)
    if (processor, kind) != (ARM64, EXECUTE):
        raise Broken(f"it is no executable for arm64: processor {processor:#x}, kind {kind}")
    if not flags & PIE:
        raise Broken("it cannot be loaded at any address")
    at = 32
    for _ in range(count):
        number, length = struct.unpack_from("<2I", data, at)
        if length < 8 or at + length > 32 + size:
            raise Broken("its load commands are longer than they say")
        yield number, data[at : at + length]
        at += length


def check_signature(data, offset, length):
    """Every page has the hash that the signature says, and nothing follows the signature."""
    if offset + length != len(data):
        raise Broken("its signature is not its end")
    magic, _, count = struct.unpack_from(">3I", data, offset)
    if magic != SIGNED:
        raise Broken("its signature is none")
    blobs = [struct.unpack_from(">2I", data, offset + 12 + 8 * i) for i in range(count)]
    at = next((offset + place for kind, place in blobs if kind == 0), None)
    if at is None:
        raise Broken("its signature lists no pages")
    magic, _, _, flags, hashes, _, _, _, limit, size, hash_type, _, page = struct.unpack_from(">9I4B", data, at)
    if magic != DIRECTORY or not flags & AD_HOC or (size, hash_type) != (32, 2):
        raise Broken("its signature is of a kind that no linker makes")
    if limit != offset:
        raise Broken("a part of it is not signed")
    for number, start in enumerate(range(0, limit, 1 << page)):
        said = data[at + hashes + 32 * number :][:32]
        if hashlib.sha256(data[start : min(start + (1 << page), limit)]).digest() != said:
            raise Broken(f"page {number} is not the one that was signed")


def foreign(data, command, libraries):
    """How many names it takes from libraries, each of them from one of `libraries`."""
    _, _, symbols, count, names, _ = struct.unpack("<6I", command[:24])
    taken = 0
    for number in range(count):
        name, kind, _, description, _ = struct.unpack_from("<IBBHQ", data, symbols + 16 * number)
        # Neither for a debugger, nor defined here.
        if kind & 0xE0 or kind & 0x0E:
            continue
        taken += 1
        library = description >> 8
        if not 1 <= library <= len(libraries):
            raise Broken(f"{text(data, names + name)} is of no library")
    return taken


def check(data):
    """What the program is, in words. `Broken` says why it would not be loaded."""
    libraries, macos, main, signature, symbols, end = [], None, False, None, None, 0
    for number, command in commands(data):
        if number == LOAD_DYLIB:
            libraries.append(text(command, struct.unpack_from("<I", command, 8)[0]))
        elif number in OTHER_DYLIBS:
            raise Broken(f"it has a library that is {OTHER_DYLIBS[number]}")
        elif number == BUILD_VERSION:
            platform, least = struct.unpack_from("<2I", command, 8)
            if platform != 1:
                raise Broken("it is for another system than macOS")
            macos = f"{least >> 16}.{least >> 8 & 0xFF}"
        elif number == MAIN:
            main = True
        elif number == SIGNATURE:
            signature = struct.unpack_from("<2I", command, 8)
        elif number == SYMTAB:
            symbols = command
        elif number == SEGMENT:
            offset, size = struct.unpack_from("<2Q", command, 40)
            end = max(end, offset + size)
    if end > len(data):
        raise Broken("its end is missing")
    if macos is None or not main:
        raise Broken("it says no oldest macOS or has no start")
    for name in libraries:
        if not name.startswith(OF_THE_SYSTEM):
            raise Broken(f"it is linked with {name}, which is no library of the system")
    if signature is None:
        raise Broken("it is not signed")
    check_signature(data, *signature)
    taken = foreign(data, symbols, libraries) if symbols else 0
    linked = ", ".join(name.rsplit("/", 1)[1] for name in libraries)
    return f"Mach-O for arm64, macOS {macos} or newer; {taken} names of {linked}; the signature fits"


if __name__ == "__main__":
    try:
        print(check(Path(sys.argv[1]).read_bytes()))
    except (Broken, struct.error, ValueError) as error:
        sys.exit(f"error: macOS would not load {sys.argv[1]}: {error}")
