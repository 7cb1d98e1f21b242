#!/usr/bin/env python3
"""How much of the time of candle's own models is in spans with a module's name, and what the rest is, from call stacks.

Usage: tests/models/where_time_goes.py CANDLESCOPE OUT [MODEL…]

Profiles each model (`config:NAME`, random weights at the published size) on the CPU by candle's own code, exports its stacks as
lines, and prints a row of Markdown for each kind of step: time on the CPU, all threads, sampled.
"""

import collections
import pathlib
import re
import subprocess
import sys

program, out, models = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
models = models or ["smollm2-135m", "qwen2.5-0.5b", "qwen3-0.6b", "t5-small", "bert-base", "whisper-tiny"]
out.mkdir(parents=True, exist_ok=True)
OPERATION = re.compile(r"^<?(candle_core::tensor::Tensor|candle_nn|candle_core::[a-z_]+)\b.*")


def is_function(name):
    return "::" in name or name[:1] in "[<{" or "(" in name


def operation(functions):
    """The outermost of candle's operations on the stack; what a model does besides has its own function's name."""
    for name in functions:
        if OPERATION.match(name) and "::Module" not in name and not name.endswith("::apply"):
            plain = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", name))
            return "::".join(part for part in plain.split("::") if part)
    return "the model's own code" if any("candle_transformers" in name for name in functions) else "around the model"


print("| model | step | CPU time in spans with a name | most of the rest | samples of |\n|---|---|---:|---|---:|")
for model in models:
    run, lines = out / model, out / f"{model}.folded"
    subprocess.run(["rm", "-rf", str(run)], check=True)
    words = ["--engine", "candle", "--model", f"config:{model}", "--prompt-tokens", "32", "--max-new-tokens", "24"]
    words += ["--repeats", "2", "--ignore-eos", "--no-progress", "--out", str(run)]
    done = subprocess.run([program, "profile", *words], capture_output=True, text=True)
    if done.returncode:
        print(f"| {model} | | | failed: {done.stderr.strip().splitlines()[-1]} | |")
        continue
    subprocess.run([program, "export", "stacks", str(run), "--out", str(lines)], check=True, capture_output=True)
    named, rest = collections.Counter(), collections.defaultdict(collections.Counter)
    for line in lines.read_text().splitlines():
        stack, ns = line.rsplit(" ", 1)
        frames = stack.split(";")
        cut = next((at for at, name in enumerate(frames) if at and is_function(name)), len(frames))
        step, intervals = frames[0], frames[1:cut]
        if step == "sample" or "sample" in intervals:
            continue
        if any(name not in ("model",) for name in intervals):
            named[step] += int(ns)
        else:
            rest[step][operation(frames[cut:])] += int(ns)
    for step in sorted({*named, *rest}):
        outside = sum(rest[step].values())
        whole = named[step] + outside
        most = ", ".join(f"`{name}` {100 * ns / whole:.0f} %" for name, ns in rest[step].most_common(4) if ns / whole >= 0.02)
        print(f"| {model} | `{step}` | {100 * named[step] / whole:.0f} % | {most or '–'} | {whole / 1e9:.1f} s |", flush=True)
