#!/usr/bin/env python3
"""The PyTorch profiler on the same architecture, decoding the same way: what it costs, and bytes an event on disk.

Needs torch and transformers with CUDA. One process, modes in turns of a few tokens, ratios of medians against no profiler.
Usage: torch_peer.py [--rounds N] [--tokens N] [--json FILE]
"""
import argparse
import json
import os
import random
import statistics
import tempfile
import time

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache  # noqa: F401

options = argparse.ArgumentParser()
options.add_argument("--rounds", type=int, default=15)
options.add_argument("--tokens", type=int, default=24)
options.add_argument("--json")
options = options.parse_args()

# SmolLM2-135M with random weights: speed depends on the shape only.
config = LlamaConfig(
    hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
    vocab_size=49152, max_position_embeddings=8192, rope_theta=100000.0, tie_word_embeddings=True, attn_implementation="eager",
)
torch.manual_seed(1)
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
prompt = torch.randint(0, config.vocab_size, (1, 16), device="cuda")


@torch.no_grad()
def decode(tokens):
    """Seconds a token, prefill and clean-up left out; every step ends by fetching the token."""
    out = model(prompt, use_cache=True)
    cache, token = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
    token.item()
    start = time.perf_counter()
    for _ in range(tokens):
        out = model(token, past_key_values=cache, use_cache=True)
        cache, token = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
        token.item()
    return (time.perf_counter() - start) / tokens


modes = {
    "no profiler": None,
    "no profiler again": None,
    "CPU and CUDA": [ProfilerActivity.CPU, ProfilerActivity.CUDA],
    "CUDA only": [ProfilerActivity.CUDA],
}
seconds = {name: [] for name in modes}
bytes_an_event = {}
for round_ in range(options.rounds + 2):
    names = list(modes)
    random.Random(round_).shuffle(names)
    for name in names:
        activities = modes[name]
        if activities is None:
            took = decode(options.tokens)
        else:
            with profile(activities=activities) as p:
                took = decode(options.tokens)
            if name not in bytes_an_event:
                path = os.path.join(tempfile.mkdtemp(), "trace.json")
                p.export_chrome_trace(path)
                with open(path) as file:
                    events = len(json.load(file)["traceEvents"])
                bytes_an_event[name] = os.path.getsize(path) / events
        if round_ >= 2:
            seconds[name].append(took)

plain = seconds["no profiler"]
rows = []
for name, taken in seconds.items():
    ratio = statistics.median(taken) / statistics.median(plain)
    pairs = [a / b for a, b in zip(taken, plain)]
    resampled = sorted(
        statistics.median(random.Random(i).choices(taken, k=len(taken))) /
        statistics.median(random.Random(-i - 1).choices(plain, k=len(plain))) for i in range(2000)
    )
    low, high = resampled[50], resampled[1949]
    rows.append({
        "mode": name, "ms_a_token": statistics.median(taken) * 1e3, "ratio": ratio, "low": low, "high": high,
        "n": len(taken), "bytes_an_event": bytes_an_event.get(name), "spread_of_pairs": [min(pairs), max(pairs)],
    })
    size = f", {bytes_an_event[name]:.0f} bytes an event" if name in bytes_an_event else ""
    print(f"{name:20} {statistics.median(taken) * 1e3:8.3f} ms/token  {(ratio - 1) * 100:+6.1f} % "
          f"({(low - 1) * 100:+.1f} to {(high - 1) * 100:+.1f}){size}")
if options.json:
    with open(options.json, "w") as file:
        json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "rows": rows}, file, indent=1)
