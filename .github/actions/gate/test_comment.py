"""`comment.py` against a server on this machine that stands for GitHub's API, and the shell of `action.yml` with a program
that stands for candlescope. Run: python3 -m unittest discover -s .github/actions/gate
"""
import contextlib
import http.server
import io
import json
import os
import re
import subprocess
import tempfile
import threading
import unittest
import urllib.parse
from unittest import mock

import comment

HERE = os.path.dirname(os.path.abspath(__file__))
BOT = "github-actions[bot]"


def answer(outcome, **more):
    step = {
        "name": "step_ns", "unit": "ns", "better": "lower", "a": 2.0e6, "b": 2.2e6, "outcome": outcome,
        "estimate": {"change": 0.1, "low": 0.08, "high": 0.12}, "floor": {"share": 0.01, "source": "days", "n": 5},
    }
    path = {"kind": "decode", "path": "model/layers/mlp", "a_ns": 1e5, "b_ns": 3e5, "share_of_step": 0.1}
    count = {"kind": "decode", "name": "kernels", "a": 700.0, "b": 732.0, "change": 0.0457, "equal": False, "exact": True}
    comparison = {
        "schema": 1, "outcome": outcome, "margin": 0.02, "step": step, "figures": [], "counts": [count],
        "paths": {"tested": 9, "changed": [path]}, "disturbed": [], "differences": [],
    }
    return {"schema": 1, "outcome": outcome, "comparison": comparison, "days": 5, "shifts": [], **more}


class Github(http.server.BaseHTTPRequestHandler):
    """Comments of one pull request, in pages as the API has them."""

    def log_message(self, *_):
        pass

    def reply(self, status, value, **headers):
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_call(self):
        state, url = self.server.state, urllib.parse.urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        state["calls"].append((self.command, url.path))
        state["tokens"].add(self.headers.get("Authorization"))
        if state.get("broken"):
            # Cut short, or no HTTP at all.
            self.wfile.write(state["broken"])
            return
        if self.command in state["refused"]:
            return self.reply(state["refused"][self.command], {"message": "no"}, Location=state.get("elsewhere", "/"))
        of_pull = "/repos/owner/name/issues/7/comments"
        if self.command == "GET" and url.path == of_pull:
            query = urllib.parse.parse_qs(url.query)
            size, page = int(query["per_page"][0]), int(query["page"][0])
            return self.reply(200, state["comments"][(page - 1) * size : page * size])
        if self.command == "POST" and url.path == of_pull:
            made = {"id": 1000 + len(state["comments"]), "user": {"login": BOT}, **json.loads(text)}
            state["comments"].append(made)
            return self.reply(201, made)
        if self.command == "PATCH" and url.path.startswith("/repos/owner/name/issues/comments/"):
            there = [c for c in state["comments"] if c["id"] == int(url.path.rsplit("/", 1)[1])]
            there[0].update(json.loads(text))
            return self.reply(200, there[0])
        return self.reply(404, {"message": "not found"})

    do_GET = do_POST = do_PATCH = handle_call


class WithGithub(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Github)
        self.server.state = self.state = {"comments": [], "calls": [], "tokens": set(), "refused": {}}
        thread = threading.Thread(target=self.server.serve_forever, args=[0.01], name="github", daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.event = {"pull_request": {"number": 7, "head": {"sha": "a" * 40}}}

    def file(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path

    def read(self, name):
        with open(self.file(name), encoding="utf-8") as file:
            return file.read()

    def environment(self):
        return {
            "PATH": os.environ["PATH"],
            "GITHUB_API_URL": f"http://127.0.0.1:{self.server.server_port}",
            "GITHUB_TOKEN": "secret",
            "GITHUB_REPOSITORY": "owner/name",
            "GITHUB_EVENT_PATH": self.file("event.json", json.dumps(self.event)),
            "GITHUB_STEP_SUMMARY": self.file("summary.md"),
            "GITHUB_OUTPUT": self.file("output.txt"),
        }

    def say(self, value, status, messages="", *more):
        text = value if isinstance(value, str) else json.dumps(value)
        arguments = ["--json", self.file("gate.json", text), "--messages", self.file("gate.txt", messages)]
        with mock.patch.dict(os.environ, self.environment(), clear=True), contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(comment.main([*arguments, "--status", str(status), *more]), 0)
        return out.getvalue()


class OnAPullRequest(WithGithub):
    def test_a_comment_is_made_once_and_then_updated(self):
        self.say(answer("worse"), 1)
        (made,) = self.state["comments"]
        self.assertTrue(made["body"].startswith("<!-- candlescope-gate: gate -->\n### candlescope gate: ❌ Worse"))
        for part in ("| `step_ns` | 2 ms | 2.2 ms | +10.0 % (+8.0 % to +12.0 %) | 1.0 % | worse |",
                     "| `decode: kernels` | 700 | 732 | +4.6 % |", "| `decode: model/layers/mlp` | 100 µs | 300 µs | +10.0 % |",
                     "margin 2 %, 5 days known", "commit " + "a" * 12):
            self.assertIn(part, made["body"])
        self.say(answer("equivalent"), 0)
        self.assertEqual(len(self.state["comments"]), 1)
        self.assertIn("✅ Equivalent", made["body"])
        self.assertEqual(self.state["tokens"], {"Bearer secret"})
        self.assertEqual(self.read("output.txt"), "outcome=worse\noutcome=equivalent\n")
        self.assertNotIn("No comment", self.read("summary.md"))

    def test_it_is_found_on_a_later_page_and_comments_of_others_are_left_alone(self):
        of_somebody = {"id": 1, "user": {"login": "mallory"}, "body": comment.mark("gate") + " mine"}
        others = [{"id": 2 + n, "user": {"login": "alice"}, "body": None} for n in range(150)]
        ours = {"id": 500, "user": {"login": BOT}, "body": comment.mark("gate") + "\nold"}
        of_another_gate = {"id": 501, "user": {"login": BOT}, "body": comment.mark("gpu") + "\nold"}
        self.state["comments"] = [of_somebody, *others, of_another_gate, ours]
        self.say(answer("better"), 0)
        self.assertIn("✅ Better", ours["body"])
        self.assertTrue(of_somebody["body"].endswith(" mine") and of_another_gate["body"].endswith("old"))
        self.say(answer("better"), 0, "", "--name", "gpu")
        self.assertIn("✅ Better", of_another_gate["body"])
        self.assertEqual(len(self.state["comments"]), 153)

    def test_without_permission_the_result_is_in_the_summary(self):
        for refused in ({"POST": 403}, {"GET": 404}, {"POST": 500}, {"GET": 302}):
            with self.subTest(refused):
                self.state.update(refused=refused, comments=[], elsewhere=f"http://127.0.0.1:{self.server.server_port}/other")
                self.assertIn("comment: the ", self.say(answer("undecided"), 2))
                self.assertEqual(self.state["comments"], [])
                self.assertIn("❔ Undecided", self.read("summary.md"))
                self.assertIn("_No comment: the ", self.read("summary.md"))
        self.assertNotIn(("GET", "/other"), self.state["calls"], "the token follows no redirection")

    def test_an_answer_that_is_cut_short_or_is_none_fails_no_job(self):
        for broken in (b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n[", b"what\r\n\r\n"):
            with self.subTest(broken):
                self.state.update(broken=broken)
                self.assertIn("cannot be reached", self.say(answer("better"), 0))
                self.assertIn("_No comment: the ", self.read("summary.md"))

    def test_without_a_pull_request_nothing_is_asked(self):
        self.event = {"ref": "refs/heads/main"}
        self.say(answer("worse"), 1)
        self.assertEqual(self.state["calls"], [])
        self.assertIn("❌ Worse", self.read("summary.md"))

    def test_an_api_that_does_not_answer_is_no_failure(self):
        self.server.shutdown()
        self.server.server_close()
        self.assertIn("cannot be reached", self.say(answer("better"), 0))
        self.assertIn("✅ Better", self.read("summary.md"))

    def test_errors_and_answers_that_do_not_fit_are_errors(self):
        self.say("", 3, "error: the baseline is of another machine\n```\n@everyone")
        (made,) = self.state["comments"]
        self.assertIn("⚠️ No answer", made["body"])
        self.assertIn("the baseline is of another machine\n'''\n@everyone\n```", made["body"])
        cases = [("no JSON", 0), ("[" * 100_000, 0), (answer("worse"), 0), (answer("better"), 127), ([1], 1), ({"outcome": {}}, 1)]
        for value, status in cases:
            self.say(value, status)
            self.assertIn("⚠️ No answer", made["body"])
        self.assertEqual(set(self.read("output.txt").split()), {"outcome=error"})

    def test_what_runs_hold_is_shown_as_code(self):
        value = answer("worse")
        evil = "a`b|c\n<!-- x --> @everyone [l](http://x)" + "y" * 500
        value["comparison"]["paths"]["changed"][0]["path"] = evil
        value["comparison"]["disturbed"] = [evil]
        value["comparison"]["differences"] = [{"key": evil, "a": {"x": evil}, "b": None}]
        value["shifts"] = [{"change": -0.1, "runs": [evil]}]
        value["not_kept"] = evil
        self.say(value, 1)
        text = self.state["comments"][0]["body"].split("\n", 1)[1]
        outside = re.sub(r"`[^`\n]*`", "", text)
        self.assertNotIn("`", outside)
        for part in ("everyone", "<!--", "http"):
            self.assertNotIn(part, outside)
        row = next(line for line in text.split("\n") if line.startswith("| `decode: a'b"))
        self.assertEqual(len(re.findall(r"(?<!\\)\|", row)), 5)

    def test_figures_of_the_wrong_kind_are_left_out(self):
        value = answer("worse")
        value["comparison"].update(step=3, figures="x", counts=[None, 1], paths=[], disturbed=7, margin="wide", differences={})
        value.update(days=float("nan"), shifts=[{"runs": 1, "change": "x"}])
        self.say(value, 1)
        self.assertIn("❌ Worse", self.state["comments"][0]["body"])

    def test_absurd_figures_are_left_out_and_named(self):
        value = answer("worse")
        comparison = value["comparison"]
        comparison["step"].update(a=10**400, b=-1e300, floor={"share": 1e300})
        comparison["step"]["estimate"].update(change=float("inf"), low="x", high=1e9)
        comparison["counts"][0].update(a=True)
        value["days"] = [4]
        self.say(value, 1)
        text = self.state["comments"][0]["body"]
        self.assertIn("❌ Worse", text)
        self.assertIn("| `step_ns` | – | – | – | – | worse |", text)
        row = next(line for line in text.split("\n") if line.startswith("- left out, because"))
        of_step = ("a", "b", "change", "low", "high", "share")
        expected = ["answer: days", *(f"step_ns: {key}" for key in of_step), "kernels: a"]
        self.assertEqual(re.findall("`([^`]+)`", row), expected)
        self.assertTrue(row.endswith("; use the action of candlescope's own version"))
        self.say(answer("worse"), 1)
        self.assertNotIn("left out", self.state["comments"][0]["body"])

    def test_long_answers_are_cut(self):
        value = answer("worse")
        value["comparison"]["paths"]["changed"] *= 10_000
        self.say(value, 1)
        self.assertLess(len(self.state["comments"][0]["body"]), comment.LONGEST + 10)
        self.assertEqual(self.state["comments"][0]["body"].count("model/layers/mlp"), comment.MOST_ROWS)

    def test_a_name_cannot_end_the_mark(self):
        for name in ("a -->", "", "a\nb", "a--b"):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                self.say(answer("better"), 0, "", "--name", name)


def scripts(action):
    """The scripts of the action's steps, in order, without a parser of YAML."""
    found, lines = [], action.split("\n")
    for at, line in enumerate(lines):
        head = re.match(r"( +)run: (.*)", line)
        if head and head[2] == "|":
            deeper = len(head[1]) + 2
            rest = []
            for below in lines[at + 1 :]:
                if below.strip() and not below.startswith(" " * deeper):
                    break
                rest.append(below[deeper:])
            found.append("\n".join(rest))
        elif head:
            found.append(head[2])
    return found


def commands(log):
    """Lines of a log that GitHub takes for commands: none between `stop-commands` and the token, whatever is around."""
    found, token = [], None
    for line in log.split("\n"):
        command = re.match(r"\s*::([^ :]+)[^:]*::(.*)", line)
        if token is not None:
            token = None if command and command[1].lower() == token.lower() else token
        elif command and command[1] == "stop-commands":
            token = command[2]
        elif command or "##[" in line:
            found.append(line)
    assert token is None, "commands stay stopped"
    return found


class TheAction(WithGithub):
    def setUp(self):
        super().setUp()
        with open(os.path.join(HERE, "action.yml"), encoding="utf-8") as file:
            self.scripts = scripts(file.read())
        program = (
            '#!/bin/sh\nprintf "%s\\n" "$@" > "$SEEN"\necho "$ANSWER"\n'
            'printf "%b" "${SAY:-said on standard error}" >&2\nexit "$GATE"\n'
        )
        self.program = self.file("candlescope", program)
        os.chmod(self.program, 0o755)

    def bash(self, script, **variables):
        environment = {**self.environment(), "RUNNER_TEMP": self.folder, **variables}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=60)

    def gate(self, value, status, runs="runs/a\n\n  runs/b c\n", options="--within=3\n", say="", before=""):
        """The first two steps; nothing of the second where the first does not pass."""
        inputs, gate, _, _ = self.scripts
        self.file("output.txt", "")
        variables = {
            "PROGRAM": self.program, "RUNS": runs, "BASELINE": "base line", "OPTIONS": options, "NAME": "gate",
            "UNDECIDED": "pass", "CHECK": os.path.join(HERE, "check_inputs.py"),
            "SEEN": self.file("seen.txt"), "ANSWER": json.dumps(value), "GATE": str(status), "SAY": say,
        }
        done = self.bash(inputs, **variables)
        return self.bash(before + gate, **variables) if done.returncode == 0 else done

    def action(self, value, status, undecided="pass", **more):
        _, _, said, end = self.scripts
        done = self.gate(value, status, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        outputs = dict(line.split("=", 1) for line in self.read("output.txt").split())
        variables = {key.upper(): outputs[key] for key in ("json", "messages", "status")}
        done = self.bash(said, SCRIPT=os.path.join(HERE, "comment.py"), NAME="gate", AUTHOR=BOT, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        outputs = dict(line.split("=", 1) for line in self.read("output.txt").split())
        return self.bash(end, OUTCOME=outputs["outcome"], UNDECIDED=undecided).returncode

    def test_inputs_are_in_no_script(self):
        self.assertEqual(len(self.scripts), 4)
        self.assertFalse([script for script in self.scripts if "${{" in script])

    def test_words_reach_the_gate_as_they_are(self):
        self.action(answer("better"), 0, runs="runs/a\n\n$(touch hit) `touch hit`; *\n")
        words = ["gate", "--json", "--baseline", "base line", "--within=3", "--", "runs/a", "$(touch hit) `touch hit`; *"]
        self.assertEqual(self.read("seen.txt").splitlines(), words)
        self.assertFalse(os.path.exists(self.file("hit")))

    def test_a_bash_without_mapfile_is_enough(self):
        before = "enable -n mapfile readarray 2> /dev/null || true\n"
        done = self.gate(answer("better"), 0, runs="  runs/a b\n\nruns/c", options=" \n", before=before)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        words = ["gate", "--json", "--baseline", "base line", "--", "runs/a b", "runs/c"]
        self.assertEqual(self.read("seen.txt").splitlines(), words)

    def test_what_the_program_says_is_no_command_of_the_workflow(self):
        said = "::error::no\\n  ::add-mask::a\\n##[add-path]x\\n::stop-commands::t\\n::t::\\n::add-path::/tmp"
        logs = [self.gate(answer("worse"), 1, say=say).stdout for say in (said, said)]
        for log in logs:
            self.assertIn("::add-path::/tmp\n", log)
            self.assertEqual(commands(log), [])
        self.assertNotEqual(logs[0], logs[1], "the token is another one each time")
        self.assertIn("messages=", self.read("output.txt"))

    def test_inputs_that_cannot_be_meant_end_the_job_before_the_gate(self):
        done = self.gate(answer("better"), 0, options="--within=much\n")
        self.assertEqual((done.returncode, os.path.exists(self.file("seen.txt"))), (3, False))
        self.assertIn("::error title=candlescope gate::input `options`: `--within=much`: a percentage", done.stdout)

    def test_the_job_ends_as_the_gate_does(self):
        self.assertEqual(self.action(answer("better"), 0), 0)
        self.assertEqual(self.action(answer("worse"), 1), 1)
        self.assertEqual(self.action(answer("undecided"), 2), 0)
        self.assertEqual(self.action(answer("undecided"), 2, undecided="fail"), 2)
        self.assertEqual(self.action("", 3), 3)
        self.assertIn("said on standard error", self.state["comments"][0]["body"])
        self.assertEqual(self.action(answer("worse"), 0), 3)
        self.assertEqual(len(self.state["comments"]), 1)


if __name__ == "__main__":
    unittest.main()
