#!/usr/bin/env python3
"""Runs candlescope and its peers in turns against one server, and prints their medians and ratios as a table.

Called by tests/peers/load.sh. Whoever is first changes with each round. Every figure is taken from each tool's own
records of requests, in the same way: TTFT from the start of the request to its first token, TPOT is what the peers call
inter-token latency, E2E as each of them has it. Where the server has noted its own times of the same answers, a second
table holds each tool against them, answer by answer: what it shows above them is its own, the network's and the
machine's.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import urllib.request

FIGURES = ["TTFT, ms", "TPOT, ms", "E2E, ms", "output tokens", "requests/s", "tokens/s"]


class Round:
    """What a tool recorded: requests as (end, whether it is measured, (TTFT, TPOT, E2E in ms, tokens)) in order of
    their end, and the tool's own requests and tokens a second."""

    def __init__(self, requests, rates):
        self.requests, self.rates, self.pairs = sorted(requests), rates, []

    def figures(self):
        measured = zip(*(figures for _, is_measured, figures in self.requests if is_measured))
        return dict(zip(FIGURES, [*map(statistics.median, measured), *self.rates]))

    def pair_with(self, noted):
        """Finds each answer among those that the server noted, which may have some that the tool did not keep."""
        own = [(is_measured, figures) for _, is_measured, figures in self.requests]

        def apart(start):
            return sum(abs(figures[2] - of[2]) for (_, figures), of in zip(own, noted[start:]))

        start = min(range(len(noted) - len(own) + 1), key=apart, default=None)
        if start is not None:
            self.pairs = [(figures, of) for (is_measured, figures), of in zip(own, noted[start:]) if is_measured]


def candlescope(o, out):
    body = json.dumps({"temperature": 0, **o.extra})
    run(out, [o.candlescope, "load", o.url, "--endpoint", "completions", "--model", o.model, "--dataset", o.prompts,
              "--concurrency", o.clients, "--requests", o.requests, "--max-tokens", o.tokens, "--body", body,
              "--out", out / "results", "--no-progress"])


def read_candlescope(out):
    found = json.loads((out / "results" / "load_test_results.json").read_text())
    figures = found["stages"][0]["figures"]

    def of(r):
        first, last = r["token_ns"][0] / 1e6, r["token_ns"][-1] / 1e6
        times = first, (last - first) / (r["output_tokens"] - 1), last, r["output_tokens"]
        return r["start_ns"] + r["end_ns"], r["part"] == "measured", times

    requests = [of(r) for r in found["requests"] if "failure" not in r]
    return Round(requests, [figures["requests_per_s"], figures["output_tokens_per_s"]])


def guidellm(o, out):
    backend = {"kind": "openai_http", "target": o.url, "model": o.model, "request_format": "/v1/completions",
               "validate_backend": False, "max_tokens": o.tokens, "extras": {"body": {"temperature": 0, **o.extra}}}
    run(out, [o.peers / "guidellm/bin/guidellm", "run", "--backend", json.dumps(backend),
              "--profile", f"kind=concurrent,streams={o.clients}",
              "--constraint", f"kind=max_requests,count={o.requests}",
              "--data", f"kind=json_file,path={o.prompts}", "--output", f"kind=json,path={out / 'results.json'}",
              "--disable-console"])


def read_guidellm(out):
    found = json.loads((out / "results.json").read_text())["benchmarks"][0]
    names = ["time_to_first_token_ms", "inter_token_latency_ms", "request_latency", "output_tokens"]
    requests = [(r["request_end_time"], True, [r[name] * (1e3 if name == "request_latency" else 1) for name in names])
                for r in found["requests"]["successful"]]
    names = ["requests_per_second", "output_tokens_per_second"]
    rates = [found["metrics"][name]["successful"]["mean"] for name in names]
    return Round(requests, rates)


def aiperf(o, out):
    fields = [part for name, value in {"temperature": 0, **o.extra}.items()
              for part in ["--extra-inputs", f"{name}:{json.dumps(value)}"]]
    run(out, [o.peers / "aiperf/bin/aiperf", "profile", "--url", o.url, "--model", o.model,
              "--endpoint-type", "completions", "--streaming", "--input-file", o.prompts_of_aiperf,
              "--custom-dataset-type", "single_turn", "--output-tokens-mean", o.tokens, "--output-tokens-stddev", 0,
              "--concurrency", o.clients, "--request-count", o.requests, "--warmup-request-count", 2 * o.clients,
              "--use-server-token-count", "--tokenizer", o.tokenizer, "--ui", "none", "--no-gpu-telemetry",
              "--no-server-metrics", "--output-artifact-dir", out / "results", *fields])


def read_aiperf(out):
    lines = (out / "results" / "profile_export.jsonl").read_text().splitlines()
    records = [r for r in map(json.loads, lines) if not r.get("error")]
    names = ["time_to_first_token", "inter_token_latency", "request_latency", "output_sequence_length"]
    found = json.loads((out / "results" / "profile_export_aiperf.json").read_text())
    rates = [found[name]["avg"] for name in ("request_throughput", "output_token_throughput")]
    requests = [(r["metadata"]["request_end_ns"], r["metadata"]["benchmark_phase"] == "profiling",
                 [r["metrics"][name]["value"] for name in names]) for r in records]
    return Round(requests, rates)


TOOLS = {"candlescope": (candlescope, read_candlescope), "guidellm": (guidellm, read_guidellm),
         "aiperf": (aiperf, read_aiperf)}


def run(out, command):
    """Runs a tool; what it says is kept beside its results."""
    out.mkdir()
    with open(out / "log", "w", encoding="utf-8") as log:
        ended = subprocess.run([str(part) for part in command], stdout=log, stderr=subprocess.STDOUT, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{command[0]} failed: see {out / 'log'}")


class Server:
    """What the server itself noted of the answers since the last call: a paced one in a file of its own, llama.cpp's in
    its log. Answers of other lengths are first requests."""

    TIMING = re.compile(r"(prompt eval|eval|total) time = +([0-9.]+) ms / +([0-9]+) tokens")

    def __init__(self, out, tokens):
        self.sent, self.log, self.tokens, self.seen = out / "sent.jsonl", out / "server.log", tokens, 0

    def paced(self, lines):
        times = [r["sent_ns"] for r in map(json.loads, lines) if r["tokens"] == self.tokens]
        return [(t[0] / 1e6, (t[-1] - t[0]) / 1e6 / (len(t) - 1), t[-1] / 1e6) for t in times]

    def llama(self, lines):
        found, prompt, pace = [], 0.0, 0.0
        for kind, ms, tokens in (m.groups() for m in map(self.TIMING.search, lines) if m):
            if kind == "prompt eval":
                prompt = float(ms)
            elif kind == "eval":
                # From the first token to the last: one less than there are.
                pace = float(ms) / max(int(tokens) - 1, 1) if int(tokens) == self.tokens else 0.0
            elif pace:
                found.append((prompt, pace, float(ms)))
        return found

    def since(self):
        """(TTFT, TPOT, E2E in ms) of each, in order of their end."""
        path = self.sent if self.sent.exists() else self.log
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        new, self.seen = lines[self.seen:], len(lines)
        return (self.paced if path == self.sent else self.llama)(new)


def write_prompts(o):
    """The same prompts for each tool: with their own words at the beginning, so that no cache of prefixes has them.

    All have as many digits, and so as many tokens: one tool begins at the first, another one anywhere.
    """
    texts = [f"Number {1000 + i}: say what you know about the water below the bridge {1000 + i * 7 % 997}."
             for i in range(1000)]
    o.prompts, o.prompts_of_aiperf = o.out / "prompts.jsonl", o.out / "prompts-aiperf.jsonl"
    for path, field in [(o.prompts, "prompt"), (o.prompts_of_aiperf, "text")]:
        path.write_text("".join(json.dumps({field: text}) + "\n" for text in texts))


def write_tokenizer(o):
    """AIPerf wants a tokenizer, even where the server counts; its own ones are downloaded. This one knows no word."""
    o.tokenizer = o.out / "tokenizer"
    o.tokenizer.mkdir()
    special = {"id": 0, "content": "<unk>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": True}
    model = {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}
    parts = {"version": "1.0", "added_tokens": [special], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (o.tokenizer / "tokenizer.json").write_text(json.dumps(parts))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "<unk>"}
    (o.tokenizer / "tokenizer_config.json").write_text(json.dumps(config))


def tables(found):
    """The ratios of candlescope to each peer, and of each tool to what the server noted of the same answers."""
    middle = statistics.median
    figures = {name: [r.figures() for r in rounds] for name, rounds in found.items()}
    print("\n| figure | candlescope | peer | ratio of the medians | least, most of the rounds |")
    print("|---|---|---|---|---|")
    for peer in [name for name in found if name != "candlescope"]:
        for figure in FIGURES:
            a, b = ([r[figure] for r in figures[name]] for name in ("candlescope", peer))
            ratios = [x / y for x, y in zip(a, b)]
            print(f"| {figure} | {middle(a):.2f} | {peer} {middle(b):.2f} | **{middle(a) / middle(b):.3f}** | "
                  f"{min(ratios):.3f}, {max(ratios):.3f} |")
    if not all(r.pairs for rounds in found.values() for r in rounds):
        return
    print("\n| figure | tool | answers | the server's own | the tool's | difference | ratio | least, most of rounds |")
    print("|---|---|---|---|---|---|---|---|")
    for n, figure in enumerate(FIGURES[:3]):
        for name, rounds in found.items():
            of_round = [[(told[n], true[n]) for told, true in r.pairs] for r in rounds]
            pairs = [pair for of in of_round for pair in of]
            ratios = [middle(a / b for a, b in of) for of in of_round]
            print(f"| {figure} | {name} | {len(pairs)} | {middle(b for _, b in pairs):.2f} | "
                  f"{middle(a for a, _ in pairs):.2f} | {middle(a - b for a, b in pairs):+.2f} | "
                  f"**{middle(a / b for a, b in pairs):.4f}** | {min(ratios):.4f}, {max(ratios):.4f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--candlescope", required=True)
    parser.add_argument("--peers", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    o = parser.parse_args()
    o.tokens, o.requests = int(os.environ.get("TOKENS", 64)), int(os.environ.get("REQUESTS", 20))
    o.extra = json.loads(os.environ.get("EXTRA", '{"ignore_eos": true}'))
    with urllib.request.urlopen(o.url + "/v1/models", timeout=10) as answer:
        o.model = os.environ.get("MODEL") or json.load(answer)["data"][0]["id"]
    write_prompts(o)
    write_tokenizer(o)
    names = ["candlescope", *os.environ.get("PEERS_RUN", "guidellm aiperf").split()]
    server = Server(o.out, o.tokens)
    found = {name: [] for name in names}
    for number in range(o.rounds):
        for name in names[number % len(names):] + names[:number % len(names)]:
            server.since()
            work, read = TOOLS[name]
            work(o, o.out / f"{name}-{number}")
            found[name].append(read(o.out / f"{name}-{number}"))
            found[name][-1].pair_with(server.since())
        load = os.getloadavg()[0]
        print(f"round {number + 1} of {o.rounds}, load average {load:.1f}", file=sys.stderr, flush=True)
    print(f"{o.rounds} rounds of {o.requests} requests with {o.tokens} tokens, {o.clients} clients, {o.url}")
    tables(found)


if __name__ == "__main__":
    main()
