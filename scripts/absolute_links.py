#!/usr/bin/env python3
"""Prints a page of the repository with its links as addresses: packed into an archive, links by path lead nowhere.

Usage: scripts/absolute_links.py PAGE
"""
import os
import sys

from book_links import REPOSITORY, ROOT, is_address, relinked


def address(link, folder):
    """The link of a page in `folder` (relative to the repository) as an address."""
    if is_address(link):
        return link
    path, mark, anchor = link.partition("#")
    inside = os.path.normpath(os.path.join(folder, path))
    kind = "tree" if os.path.isdir(os.path.join(ROOT, inside)) else "blob"
    return f"{REPOSITORY}/{kind}/main/{inside}{mark}{anchor}"


if __name__ == "__main__":
    page = os.path.abspath(sys.argv[1])
    folder = os.path.relpath(os.path.dirname(page), ROOT)
    with open(page, encoding="utf-8", newline="") as file:
        text = file.read()
    sys.stdout.buffer.write(relinked(text, lambda link: address(link, folder)).encode())
