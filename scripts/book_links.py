#!/usr/bin/env python3
"""A preprocessor of mdBook (book.toml): links of the pages in docs/ as the book needs them.

Links to files outside docs/ and to folders lead to the repository, links to a folder's README.md to the page that mdBook
makes of it, index.md. The lines between `---` at the head of a skill's page are for agents: the book leaves them out.
Reads mdBook's JSON and writes it, with `supports RENDERER` says yes.
"""
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPOSITORY = "https://github.com/candlescope/candlescope"
LINK = re.compile(r"(\]\()([^)\s]+)")
HEAD = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def is_address(link):
    """Whether the link is whole as it is: not by path."""
    return "://" in link or link.startswith(("#", "mailto:"))


def relinked(text, moved):
    """The text with each link as `moved` makes it, except in blocks of code."""
    inside, lines = False, []
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            line = LINK.sub(lambda found: found[1] + moved(found[2]), line)
        lines.append(line)
    return "\n".join(lines)


def moved(link, folder):
    """The link as the book has it, of a page in `folder` (relative to docs/)."""
    if is_address(link):
        return link
    path, mark, anchor = link.partition("#")
    inside = os.path.normpath(os.path.join("docs", folder, path))
    is_folder = os.path.isdir(os.path.join(ROOT, inside))
    if is_folder or not inside.startswith("docs" + os.sep):
        kind = "tree" if is_folder else "blob"
        return f"{REPOSITORY}/{kind}/main/{inside}{mark}{anchor}"
    if os.path.basename(path) == "README.md":
        path = os.path.join(os.path.dirname(path), "index.md")
    return path + mark + anchor


def page(text, folder):
    """The page without its head, with its links moved."""
    return relinked(HEAD.sub("", text), lambda link: moved(link, folder))


def chapters(items):
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            if chapter.get("path"):
                chapter["content"] = page(chapter["content"], os.path.dirname(chapter["path"]))
            chapters(chapter.get("sub_items", []))


if __name__ == "__main__":
    if sys.argv[1:2] == ["supports"]:
        sys.exit(0)
    _, book = json.load(sys.stdin)
    # `sections` was the name until mdBook 0.5.
    chapters(book.get("items", book.get("sections", [])))
    json.dump(book, sys.stdout)
