#!/usr/bin/env python3
"""Llama in PyTorch (transformers, random weights), decoded token by token: a program for `candlescope record`, which knows nothing of it.

    record_torch.py MODE [--shape smollm2|8b] [--tokens N] [--kineto FILE] [--proton FILE] [--config FILE] [--rows FILE]

MODE: config (writes the model's configuration to FILE of --config), eager (no ranges), ranges (prefill, decode, layer N, by push and pop),
started (the same by start and end), turns (tokens without ranges, with the ones and with the others in turns, in random order), emit
(torch.autograd.profiler.emit_nvtx), compile, graph, threads (four decode at once), fork (a forked worker does it), forkserver
(a worker of multiprocessing's fork server), none (no CUDA). With
--kineto PyTorch's own profiler records the same tokens: kernels only, and
with --proton Triton's, a tree of sums in FILE.hatchet. Prints `RESULT {json}`: milliseconds a token (median), a sum of
the tokens, and what Kineto counted. With --rows each token of `turns` is a line of FILE: the turn, which ranges, milliseconds.
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import random
import statistics
import sys
import threading
import time

options = argparse.ArgumentParser()
options.add_argument("mode", choices=["config", "eager", "ranges", "started", "turns", "emit", "compile", "graph", "threads", "fork", "forkserver", "none"])
options.add_argument("--shape", choices=["smollm2", "8b"], default="smollm2")
options.add_argument("--tokens", type=int, default=100)
options.add_argument("--kineto")
options.add_argument("--proton")
options.add_argument("--config")
options.add_argument("--rows")
options = options.parse_args()
if options.mode == "none":
    print("RESULT {}")
    sys.exit(5)
if options.mode == "fork":
    # The parent has no CUDA; its child does the work and ends by _exit, as multiprocessing's workers do.
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

if options.mode == "forkserver" and __name__ == "__main__":
    # Nor has the server, which forks the worker. That loads this file as `__mp_main__`, and so does the work.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([])
    worker = context.Process(target=int)
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

SHAPES = {
    "smollm2": dict(hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                    vocab_size=49152, tie_word_embeddings=True),
    "8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
               vocab_size=128256, tie_word_embeddings=False),
}
PROMPT, WARM = 64, 5
torch.manual_seed(42)
torch.set_grad_enabled(False)
config = LlamaConfig(max_position_embeddings=2048, attn_implementation="sdpa", **SHAPES[options.shape])
if options.mode == "config":
    # vLLM wants to be told.
    config.architectures = ["LlamaForCausalLM"]
    config.to_json_file(options.config, use_diff=False)
    sys.exit(0)
with torch.device("cuda"):
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
nvtx = torch.cuda.nvtx
HOWS = ["none", "push_pop", "start_end"]
how = {"ranges": "push_pop", "started": "start_end", "turns": "push_pop"}.get(options.mode, "none")


def begin(name):
    if how == "push_pop":
        nvtx.range_push(name)
    elif how == "start_end":
        return nvtx.range_start(name)


def end(number):
    if how == "push_pop":
        nvtx.range_pop()
    elif how == "start_end":
        nvtx.range_end(number)


if how != "none":
    numbers = [None] * config.num_hidden_layers
    for number, layer in enumerate(model.model.layers):
        layer.register_forward_pre_hook(lambda *_, at=number, name=f"layer {number}": (numbers.__setitem__(at, begin(name)), None)[1])
        layer.register_forward_hook(lambda *_, at=number: (end(numbers[at]), None)[1])


@contextlib.contextmanager
def span(name):
    number = begin(name)
    yield
    end(number)


def decode(tokens, ids):
    """Milliseconds of each token, which the host reads, and the tokens."""
    global how
    cache = StaticCache(config=config, max_batch_size=1, max_cache_len=PROMPT + WARM + tokens + 8, device="cuda", dtype=torch.bfloat16)
    with span("prefill"):
        # In the range, so that the recorder counts this kernel as PyTorch's own profiler does.
        at = torch.arange(PROMPT, device="cuda")
        out = model(ids, past_key_values=cache, cache_position=at, position_ids=at.unsqueeze(0), use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
        token.item()
    position = torch.full((1,), PROMPT, dtype=torch.long, device="cuda")

    def step():
        out = model(token, past_key_values=cache, cache_position=position, position_ids=position.unsqueeze(0), use_cache=True)
        token.copy_(out.logits[:, -1:].argmax(-1))
        position.add_(1)

    run = step
    if options.mode == "compile":
        run = torch.compile(step)
    for _ in range(WARM):
        run()
        token.item()
    if options.mode == "graph":
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    times, found = [], []
    mixed = random.Random(42)
    turns = [each for _ in range(-(-tokens // len(HOWS))) for each in mixed.sample(HOWS, len(HOWS))]
    for token_at in range(tokens):
        if options.mode == "turns":
            how = turns[token_at]
        begun = time.perf_counter()
        with span("decode"):
            run()
            found.append(token.item())
        times.append((time.perf_counter() - begun) * 1e3)
    if options.rows:
        with open(options.rows, "w") as file:
            file.writelines(f"{at // len(HOWS)} {each} {ms}\n" for at, (each, ms) in enumerate(zip(turns, times)))
    return times, found


ids = torch.randint(0, config.vocab_size, (1, PROMPT), device="cuda")
result = {"mode": options.mode, "shape": options.shape, "torch": torch.__version__, "device": torch.cuda.get_device_name()}
around = torch.autograd.profiler.emit_nvtx(record_shapes=True) if options.mode == "emit" else contextlib.nullcontext()
if options.mode == "threads":
    done = [None] * 4
    threads = [threading.Thread(target=lambda n=n: done.__setitem__(n, decode(options.tokens, ids))) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    times, tokens = [ms for times, _ in done for ms in times], [token for _, found in done for token in found]
elif options.kineto:
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        times, tokens = decode(options.tokens, ids)
    profiled.export_chrome_trace(options.kineto)
    with open(options.kineto) as file:
        kernels = [event for event in json.load(file)["traceEvents"] if event.get("cat") == "kernel"]
    result |= {"kineto_kernels": len(kernels), "kineto_us": sum(event["dur"] for event in kernels)}
elif options.proton:
    import triton.profiler as proton

    session = proton.start(options.proton, context="shadow", data="tree")
    times, tokens = decode(options.tokens, ids)
    proton.finalize(session)
    with open(options.proton + ".hatchet") as file:
        todo, calls, ns = [json.load(file)[0]], 0, 0
    while todo:
        node = todo.pop()
        todo += node.get("children", [])
        calls, ns = calls + node.get("metrics", {}).get("count", 0), ns + node.get("metrics", {}).get("time (ns)", 0)
    result |= {"proton_calls": calls, "proton_us": ns / 1e3}
else:
    with around:
        times, tokens = decode(options.tokens, ids)
result |= {"ms": statistics.median(times), "n": len(times), "tokens": sum(tokens)}
print("RESULT", json.dumps(result), flush=True)
if options.mode == "fork":
    os._exit(4)
