#!/usr/bin/env python3
"""Holds the run of the patched server to what its model is, and to what it answered.

Usage: check.py CANDLESCOPE RUN SAID [requests]     SAID: a line for each answer, which begins with its tokens in and out
"""
import json
import os
import subprocess
import sys

candlescope, run, said = sys.argv[1:4]
with_requests = "requests" in sys.argv[4:]
with open(os.path.join(os.path.dirname(said), "model", "config.json")) as file:
    config = json.load(file)
with open(run + "/run.json") as file:
    modules = json.load(file)["modules"]


def rows(sql):
    answer = subprocess.run([candlescope, "query", "--json", "--limit", "0", sql, run], check=True, capture_output=True)
    return json.loads(answer.stdout)["rows"]


layers, hidden, inside = config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"]
keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]

# A layer has seven projections and two norms; the last norm and the head come on top. The embedding has no span.
assert modules["modules"] == 9 * layers + 2, modules
assert not modules["unnamed"] and not modules["unknown_callsites"], modules
assert modules["unowned"] == ["model.embed_tokens.weight"], modules

# By hand: two FLOPs for each weight and row, the head for the last row only, and attention of each query to what is before it.
in_layers = layers * (2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * inside)
head = config["vocab_size"] * hidden


def flops(new, context):
    pairs = sum(context - new + row for row in range(1, new + 1))
    return 2 * in_layers * new + 2 * head + 4 * layers * hidden * pairs


steps = rows("SELECT phase, tokens, context_len, flops FROM steps ORDER BY host_start_ns")
assert steps and all(step["flops"] == flops(step["tokens"], step["context_len"]) for step in steps), steps[:3]

# The program warms up with a text of its own, on the thread of the pool that answers later, too: its steps come first.
with open(said) as file:
    answers = [tuple(map(int, line.split()[:2])) for line in file]
second = [place for place, step in enumerate(steps) if step["phase"] == "prefill"][1]
answered = steps[second:]
prompts = [step["tokens"] for step in answered if step["phase"] == "prefill"]
assert sorted(prompts) == sorted(prompt for prompt, _ in answers), prompts
decoded = [step for step in answered if step["phase"] == "decode"]
assert len(decoded) == sum(new - 1 for _, new in answers), (len(decoded), answers)
assert all(step["tokens"] == 1 for step in decoded)

down = rows("SELECT t.tokens, s.flops FROM spans s JOIN steps t ON s.step = t.step WHERE s.module LIKE '%.mlp.down_proj'")
assert len(down) == layers * len(steps), len(down)
assert all(row["flops"] == 2 * row["tokens"] * hidden * inside for row in down), down[:3]
print(f"{len(steps)} steps, {len(answered)} of them of {len(prompts)} answers, with the FLOPs that are computed by hand")

if with_requests:
    requests = rows("SELECT prompt_tokens, output_tokens, outcome FROM requests")
    told = sorted((row["prompt_tokens"], row["output_tokens"]) for row in requests)
    assert told == sorted(answers), (told, answers)
    assert all(row["outcome"] == "done" for row in requests), requests
    print(f"{len(requests)} requests with the tokens that the server answered")
