#!/usr/bin/env python3
"""A graphed decode of SmolLM2-135M's shape in PyTorch, and what PyTorch's profiler says of a replay's layers, at what cost.

Usage: tests/gpu/torch_graph.py [STEPS]   (200; needs torch, transformers and a CUDA device; no weights: they are random)
Prints the time of a token eagerly, as a graph, and as a graph under torch.profiler (kernels only, and with stacks, modules and
shapes), and how many of the replayed kernels the profiler's trace ties to an operator or a module. Two takes each, in turns. Then the
same of Triton's profiler, Proton, where torch comes with it: as the program is, and with a scope for each layer, which has to be
recorded while the graph is captured.
"""
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import transformers
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
PROMPT, CONTEXT = 64, 512
torch.manual_seed(42)
torch.set_grad_enabled(False)
config = LlamaConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
    num_key_value_heads=3, max_position_embeddings=2048, tie_word_embeddings=True, rms_norm_eps=1e-5,
)
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
cache = StaticCache(config=config, max_batch_size=1, max_cache_len=CONTEXT, device="cuda", dtype=torch.bfloat16)
token = torch.zeros((1, 1), dtype=torch.long, device="cuda")
position = torch.full((1,), PROMPT, dtype=torch.long, device="cuda")


def step():
    out = model(token, past_key_values=cache, cache_position=position, position_ids=position.unsqueeze(0), use_cache=True)
    token.copy_(out.logits[:, -1:].argmax(-1))
    position.add_(1)


def prompt():
    cache.reset()
    ids = torch.randint(0, config.vocab_size, (1, PROMPT), device="cuda")
    at = torch.arange(PROMPT, device="cuda")
    model(ids, past_key_values=cache, cache_position=at, position_ids=at.unsqueeze(0), use_cache=True)
    position.fill_(PROMPT)


def timed(run):
    """Median milliseconds of a token that the host reads."""
    prompt()
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        run()
        token.item()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


prompt()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)


def captured():
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        step()
    return made


graph = captured()

FORMS = {
    "kernels": dict(activities=[ProfilerActivity.CUDA]),
    "operators and kernels": dict(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]),
    "with stacks, modules and shapes": dict(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True, with_modules=True, record_shapes=True
    ),
}


def tied(trace):
    """Kernels; those launched by a graph; those whose launch lies in an operator; those of a module."""
    events = json.load(open(trace))["traceEvents"]
    kernels = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})}
    of_graph = [k for k in kernels if "GraphLaunch" in launches.get(k["args"].get("correlation"), {}).get("name", "")]
    with_operator = [k for k in of_graph if k["args"].get("External id") or k["args"].get("Ev Idx")]
    modules = [e for e in events if str(e.get("name", "")).startswith("nn.Module")]
    inside = 0
    for k in of_graph:
        at = launches[k["args"]["correlation"]]["ts"]
        inside += any(m["ts"] <= at <= m["ts"] + m.get("dur", 0) for m in modules)
    return len(kernels), len(of_graph), len(with_operator), inside


print("torch", torch.__version__, "transformers", transformers.__version__, torch.cuda.get_device_name(0))
# CUPTI serves the one that came first: Proton has a process of its own, in which Kineto was never on.
PROTON = "--proton" in sys.argv
for take in () if PROTON else (1, 2):
    print(f"take {take} eager {timed(step):.3f} ms a token")
    plain = timed(graph.replay)
    print(f"take {take} graph {plain:.3f} ms a token")
    for name, options in FORMS.items():
        with profile(**options) as profiler:
            with_it = timed(graph.replay)
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            profiler.export_chrome_trace(file.name)
            kernels, of_graph, operators, modules = tied(file.name)
        print(
            f"take {take} graph, {name}: {with_it:.3f} ms a token ({with_it / plain:.2f} times); {kernels} kernels and copies, "
            f"{of_graph} of replays, of these {operators} tied to an operator, {modules} launched in a module"
        )


def counted(node, depth=0):
    """Calls and nanoseconds of a tree of Proton's: in all, and of those that are below a scope called `layer`."""
    metrics, name = node.get("metrics", {}), node["frame"]["name"]
    inside = depth or name.startswith("layer ")
    calls, ns = metrics.get("count", 0), metrics.get("time (ns)", 0)
    sums = [calls, ns, calls if inside else 0, ns if inside else 0]
    for child in node.get("children", []):
        sums = [a + b for a, b in zip(sums, counted(child, inside))]
    return sums


def under_proton(with_scopes):
    """Milliseconds of a token, and what the tree has."""
    hooks = []
    with tempfile.TemporaryDirectory() as folder:
        session = proton.start(os.path.join(folder, "tree"), context="shadow", data="tree")
        try:
            if with_scopes:
                # What a hook returns takes the place of what the layer is given: nothing.
                def enter(*_, n):
                    proton.enter_scope(f"layer {n}")

                def leave(*_):
                    proton.exit_scope()

                for n, layer in enumerate(model.model.layers):
                    hooks += [layer.register_forward_pre_hook(functools.partial(enter, n=n)), layer.register_forward_hook(leave)]
            replayed = captured() if with_scopes else graph
            for hook in hooks:
                hook.remove()
            ms = timed(replayed.replay)
        finally:
            for hook in hooks:
                hook.remove()
            proton.finalize(session)
        trees = json.load(open(os.path.join(folder, "tree.hatchet")))
    return ms, counted(trees[0])


if not PROTON:
    sys.stdout.flush()
    subprocess.run([sys.executable, "-W", "ignore", __file__, str(STEPS), "--proton"], check=True)
    sys.exit()
try:
    import triton
    import triton.profiler as proton
except Exception as error:
    print(f"no Proton: {error}")
    sys.exit()
print("triton", triton.__version__)
for take in (1, 2):
    plain = timed(graph.replay)
    print(f"take {take} graph {plain:.3f} ms a token")
    for name, with_scopes in (("Proton", False), ("Proton, layers as scopes at capture", True)):
        try:
            ms, (calls, ns, of_layers, ns_of_layers) = under_proton(with_scopes)
        except Exception as error:
            print(f"take {take} graph, {name}: {type(error).__name__}: {error}")
            continue
        print(
            f"take {take} graph, {name}: {ms:.3f} ms a token ({ms / plain:.2f} times); {calls:.0f} calls, {ns / 1e6:.2f} ms in all, "
            f"{of_layers:.0f} of them, {ns_of_layers / 1e6:.2f} ms, in a layer"
        )
