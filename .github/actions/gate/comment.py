#!/usr/bin/env python3
"""Says on a pull request what `candlescope gate` came to.

Reads the object that `gate --json` prints and its exit status, makes Markdown of them, and keeps one comment up to date:
the one that begins with this gate's mark and is by the author given, or a new one. Where the token may not write, as on
a pull request from a fork, and where there is no pull request, the same text goes to the job's summary alone.

Only the standard library. What runs hold was made by the code under test: it is shown as code, never as Markdown.
"""
import argparse
import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.request

OUTCOMES = {0: ("equivalent", "better"), 1: ("worse",), 2: ("undecided",)}
HEADS = {
    "better": "✅ Better",
    "equivalent": "✅ Equivalent",
    "undecided": "❔ Undecided",
    "worse": "❌ Worse",
    "error": "⚠️ No answer",
}
MEANS = {
    "better": "A step takes less time than in the baseline.",
    "equivalent": "The whole interval is within the margin.",
    "undecided": "Measurements are too few or too noisy to tell.",
    "worse": "A step takes longer than in the baseline, or does more work.",
    "error": "The runs could not be held against the baseline.",
}
# What GitHub takes is 65,536 characters.
LONGEST = 60_000
LARGEST_FILE = 64 << 20
# Nanoseconds, bytes and FLOPs of what was measured stay far below; beyond it a value is a fault of what wrote it.
LARGEST = 1e24
LARGEST_CHANGE = 1e6
SHARES = ("change", "low", "high", "share", "share_of_step")
NAMES = "up to 64 letters, digits, dots, dashes and underscores are wanted, no two dashes in a row"
MOST_ROWS = 10
MOST_PAGES = 50
TIMEOUT_S = 20


def code(text, longest=120):
    """Text of unknown origin as inline code: no Markdown, no mention, no end of a cell in it."""
    text = "".join(c if c.isprintable() else " " for c in str(text)).replace("`", "'").strip()
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return "`" + text.replace("|", "\\|") + "`" if text else "–"


def number(value):
    """The value if it is a number that can have been measured, else nothing."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST
    return value if known else None


def share(value):
    value = number(value)
    if value is None or abs(value) > LARGEST_CHANGE:
        return "–"
    text = f"{abs(value) * 100:.1f} %"
    return text if text == "0.0 %" else ("−" if value < 0 else "+") + text


def quantity(value, unit):
    value = number(value)
    if value is None:
        return "–"
    scales = {
        "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")),
        "bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")),
    }
    for size, name in scales.get(unit, ()):
        if abs(value) >= size or size == 1:
            return f"{value / size:.3g} {name}" if abs(value / size) < 1000 else f"{value / size:.0f} {name}"
    whole = float(value).is_integer() and abs(value) < 1e15
    return f"{value:,.0f} {unit}".strip() if whole else f"{value:.4g} {unit}".strip()


def interval(estimate):
    if not isinstance(estimate, dict):
        return "–"
    ends = [number(estimate.get(end)) for end in ("low", "high")]
    text = share(estimate.get("change"))
    return text if None in ends else f"{text} ({share(ends[0])} to {share(ends[1])})"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def dicts(value):
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def at(value, *keys):
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def figures(comparison):
    changes = [at(comparison, "step")] + dicts(at(comparison, "figures"))
    rows = []
    for change in dicts(changes)[:MOST_ROWS]:
        name, unit = change.get("name", ""), change.get("unit")
        outcome = change.get("outcome") if change.get("outcome") in HEADS else "–"
        floor = share(at(change, "floor", "share")).lstrip("+")
        row = [code(name), quantity(change.get("a"), unit), quantity(change.get("b"), unit)]
        rows.append(row + [interval(change.get("estimate")), floor, outcome])
    return table(["figure", "baseline", "now", "change", "A/A floor", "outcome"], rows) if rows else []


def counts(comparison):
    changed = [c for c in dicts(at(comparison, "counts")) if c.get("equal") is False and c.get("exact") is True]
    rows = []
    for count in changed[:MOST_ROWS]:
        a, b = (quantity(count.get(side), "") for side in "ab")
        rows.append([code(f"{count.get('kind')}: {count.get('name')}"), a, b, share(count.get("change"))])
    head = ["count of a step", "baseline", "now", "change"]
    return ["Counts that differ, which need no statistics:", ""] + table(head, rows) if rows else []


def paths(comparison):
    rows = []
    for path in dicts(at(comparison, "paths", "changed"))[:MOST_ROWS]:
        what = f"{path.get('kind')}: {path.get('path')}"
        times = [quantity(path.get(side), "ns") for side in ("a_ns", "b_ns")]
        rows.append([code(what)] + times + [share(path.get("share_of_step"))])
    return ["Paths that changed:", ""] + table(["path", "baseline", "now", "of the step"], rows) if rows else []


def left_out(answer):
    """A line with what should be a figure of the answer and is none, such as `step_ns: a`, if there is any."""
    comparison = at(answer, "comparison")
    held = [("answer", answer, ("days",)), ("comparison", comparison, ("margin",))]
    for change in dicts([at(comparison, "step")]) + dicts(at(comparison, "figures")):
        name = change.get("name")
        held += [(name, change, ("a", "b")), (name, change.get("estimate"), ("change", "low", "high"))]
        held.append((name, change.get("floor"), ("share",)))
    held += [(count.get("name"), count, ("a", "b", "change")) for count in dicts(at(comparison, "counts"))]
    paths_changed = dicts(at(comparison, "paths", "changed"))
    held += [(path.get("path"), path, ("a_ns", "b_ns", "share_of_step")) for path in paths_changed]
    held += [("shift", shift, ("change",)) for shift in dicts(at(answer, "shifts"))]

    def is_wrong(key, value):
        largest = LARGEST_CHANGE if key in SHARES else LARGEST
        return value is not None and (number(value) is None or abs(value) > largest)

    wrong = [code(f"{name}: {key}") for name, values, keys in held for key in keys if is_wrong(key, at(values, key))]
    if not wrong:
        return []
    more = f" and {len(wrong) - MOST_ROWS} more" if len(wrong) > MOST_ROWS else ""
    named = ", ".join(wrong[:MOST_ROWS]) + more
    remedy = "use the action of candlescope's own version"
    return [f"- left out, because no measurement gives such a value: {named}; {remedy}"]


def facts(answer):
    """What has to be known beside the figures, a line each."""
    comparison = at(answer, "comparison")
    disturbed = at(comparison, "disturbed")
    lines = ["- disturbed: " + code(text, 300) for text in (disturbed if isinstance(disturbed, list) else [])[:MOST_ROWS]]
    for other in dicts(at(comparison, "differences"))[:MOST_ROWS]:
        lines.append(f"- differs: {code(other.get('key'))} was {code(other.get('a'))}, is {code(other.get('b'))}")
    for shift in dicts(at(answer, "shifts"))[:MOST_ROWS]:
        runs = shift.get("runs") if isinstance(shift.get("runs"), list) else []
        named = ", ".join(code(run) for run in runs[:3])
        lines.append(f"- the history changed its level by {share(shift.get('change'))} with {named or '–'}")
    for key in ("not_read", "not_kept"):
        if at(answer, key):
            lines.append("- history: " + code(at(answer, key), 300))
    lines += left_out(answer)
    return lines + [""] if lines else []


def outcome_of(answer, status):
    """The outcome on which object and exit status agree; `error` where they do not."""
    said = at(answer, "outcome")
    return said if isinstance(said, str) and said in OUTCOMES.get(status, ()) else "error"


def body(answer, status, messages, name, commit=None, run=None):
    """The comment, which begins with the mark by which it is found again."""
    outcome = outcome_of(answer, status)
    lines = [mark(name), f"### candlescope {name}: {HEADS[outcome]}", "", MEANS[outcome], ""]
    if outcome == "error":
        if status in OUTCOMES:
            lines += [f"The exit status {status} and the answer do not belong together.", ""]
        text = messages.strip().replace("```", "'''")[-4000:]
        lines += (["```text", "".join(c if c.isprintable() or c == "\n" else " " for c in text), "```", ""] if text else [])
    else:
        comparison = at(answer, "comparison")
        lines += figures(comparison) + counts(comparison) + paths(comparison) + facts(answer)
        days, margin = number(at(answer, "days")), number(at(comparison, "margin"))
        known = [f"margin {margin * 100:g} %"] if margin is not None else []
        known += [f"{days:g} {'day' if days == 1 else 'days'} known"] if days is not None else []
        lines += [", ".join(known), ""] if known else []
    foot = ([f"commit {commit[:12]}"] if commit else []) + ([f"[job]({run})"] if run else [])
    text = "\n".join(lines + [" · ".join(foot)]).rstrip()
    return text if len(text) <= LONGEST else text[:LONGEST] + "\n\n…"


def is_name(name):
    """Whether this can tell gates apart, and cannot end the mark."""
    return re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name) is not None and "--" not in name


def mark(name):
    return f"<!-- candlescope-gate: {name} -->"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes to the address that the runner names, and to no other."""

    def redirect_request(self, *_):
        return None


class Api:
    def __init__(self, url, token):
        self.url, self.token = url.rstrip("/"), token
        self.opener = urllib.request.build_opener(NoRedirect)

    def call(self, method, path, content=None):
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Accept", "application/vnd.github+json")
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("X-GitHub-Api-Version", "2022-11-28")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        with self.opener.open(request, timeout=TIMEOUT_S) as response:
            return json.load(response)

    def mine(self, repository, number, name, author):
        """The id of the comment that is there, if there is one."""
        for page in range(1, MOST_PAGES + 1):
            found = self.call("GET", f"/repos/{repository}/issues/{number}/comments?per_page=100&page={page}")
            if not isinstance(found, list):
                raise ValueError("no list of comments")
            for comment in dicts(found):
                ours = at(comment, "user", "login") == author
                if ours and str(comment.get("body") or "").startswith(mark(name)):
                    return comment.get("id")
            if len(found) < 100:
                return None
        return None

    def say(self, repository, number, text, name, author):
        there = self.mine(repository, number, name, author)
        if isinstance(there, int):
            self.call("PATCH", f"/repos/{repository}/issues/comments/{there}", {"body": text})
            return "updated"
        self.call("POST", f"/repos/{repository}/issues/{number}/comments", {"body": text})
        return "made"


def read(path):
    """A file's text; nothing if it is missing, too large or no text."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(LARGEST_FILE + 1)
    except OSError:
        return ""
    return text if len(text) <= LARGEST_FILE else ""


def parsed(text):
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def append(variable, text):
    path = os.environ.get(variable)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text + "\n")


def comment(text, name, author, event):
    """Writes the comment, and says what became of it."""
    number, repository = at(event, "pull_request", "number"), os.environ.get("GITHUB_REPOSITORY", "")
    token = os.environ.get("GITHUB_TOKEN", "")
    if not isinstance(number, int):
        return "there is no pull request"
    if not token or not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        return "there is no token, or no repository"
    api = Api(os.environ.get("GITHUB_API_URL", "https://api.github.com"), token)
    try:
        return api.say(repository, number, text, name, author)
    except urllib.error.HTTPError as error:
        may_not = "the token may not write (a fork, or no `pull-requests: write`)"
        return may_not if error.code in (401, 403, 404) else f"the API answered {error.code}"
    # An answer that is cut short, or is no HTTP, is neither of the first two.
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"the API cannot be reached: {type(error).__name__}"


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Says on a pull request what `candlescope gate` came to.")
    parser.add_argument("--json", required=True, help="what `gate --json` printed")
    parser.add_argument("--messages", default="", help="what it wrote to standard error")
    parser.add_argument("--status", required=True, type=int, help="its exit status")
    parser.add_argument("--name", default="gate", help="tells several gates of one pull request apart")
    parser.add_argument("--author", default="github-actions[bot]", help="who writes with the token")
    options = parser.parse_args(arguments)
    if not is_name(options.name):
        parser.error(f"--name: {NAMES}")

    answer = parsed(read(options.json))
    event = parsed(read(os.environ.get("GITHUB_EVENT_PATH", "")))
    commit = at(event, "pull_request", "head", "sha") or os.environ.get("GITHUB_SHA", "")
    commit = commit if re.fullmatch(r"[0-9a-f]{40,64}", str(commit)) else None
    server, repository, run = (os.environ.get(f"GITHUB_{key}", "") for key in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    job = f"{server}/{repository}/actions/runs/{run}" if server and repository and run else None
    text = body(answer, options.status, read(options.messages), options.name, commit, job)

    append("GITHUB_OUTPUT", f"outcome={outcome_of(answer, options.status)}")
    done = comment(text, options.name, options.author, event)
    append("GITHUB_STEP_SUMMARY", text if done in ("made", "updated") else f"{text}\n\n_No comment: {done}._")
    print(f"comment: {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
