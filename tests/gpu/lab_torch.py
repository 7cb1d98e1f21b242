#!/usr/bin/env python3
"""PyTorch on the shapes that `candlescope bench` measured: reads OUT/kernels.json and OUT/peaks.json, prints ratios.

Timed as there: a buffer larger than L2 is written before each repetition, inputs are random and renewed, time is
between two CUDA events in the stream. Kernels' own time comes from the PyTorch profiler, as theirs, from CUPTI.
Usage: lab_torch.py OUT [--device cuda:0] [--seconds 2]
"""
import argparse
import csv
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

options = argparse.ArgumentParser()
options.add_argument("out")
options.add_argument("--device", default="cuda:0")
options.add_argument("--seconds", type=float, default=2.0, help="for one operation")
options = options.parse_args()
device = torch.device(options.device)
torch.cuda.set_device(device)
torch.manual_seed(42)
# candle adds up in f32, and multiplies f32 as such.
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_tf32 = False
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
flush = torch.empty(max(2 * torch.cuda.get_device_properties(device).L2_cache_size, 256 << 20) // 4, device=device)


def values(*shape, dtype):
    return torch.empty(shape, device=device, dtype=dtype).uniform_(-1, 1)


def operation(op, dtype, s):
    """Inputs for one repetition, and the function of them; None where PyTorch has no counterpart."""
    if op == "gemm":
        return lambda: (values(s["m"], s["k"], dtype=dtype), values(s["k"], s["n"], dtype=dtype)), torch.mm
    if op == "linear":
        return lambda: (values(s["m"], s["k"], dtype=dtype), values(s["n"], s["k"], dtype=dtype)), F.linear
    if op == "softmax":
        return lambda: (values(s["rows"], s["width"], dtype=dtype),), lambda x: F.softmax(x, -1)
    if op == "rmsnorm":
        weight = values(s["width"], dtype=dtype)
        normal = lambda x: F.rms_norm(x, (s["width"],), weight, 1e-5)
        return lambda: (values(s["rows"], s["width"], dtype=dtype),), normal
    if op == "layernorm_gelu":
        weight, bias = values(s["width"], dtype=dtype), values(s["width"], dtype=dtype)
        normal = lambda x: F.gelu(F.layer_norm(x, (s["width"],), weight, bias, 1e-5))
        return lambda: (values(s["rows"], s["width"], dtype=dtype),), normal
    if op == "embedding":
        table = values(s["vocab"], s["width"], dtype=dtype)
        inputs = lambda: (torch.randint(0, s["vocab"], (s["tokens"],), device=device),)
        return inputs, lambda ids: F.embedding(ids, table)
    if op in ("attention_prefill", "attention_decode"):
        prefill = op == "attention_prefill"
        tokens = s["context"] if prefill else 1

        def inputs():
            kept = (s["batch"], s["kv_heads"], s["context"], s["head"])
            asked = (s["batch"], s["heads"], tokens, s["head"])
            return tuple(values(*shape, dtype=dtype) for shape in (asked, kept, kept))

        return inputs, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=prefill, enable_gqa=True)
    return None


def median_ns(pool, run):
    """Median time between two events, over repetitions with flushed caches."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times, until, n = [], time.perf_counter() + options.seconds, 0
    while n < 13 or (time.perf_counter() < until and n < 2000):
        flush.fill_(1.0)
        begin.record()
        run(*pool[n % len(pool)])
        end.record()
        end.synchronize()
        n += 1
        if n > 3:
            times.append(begin.elapsed_time(end) * 1e6)
    return statistics.median(times), len(times)


def kernels_ns(pool, run, repetitions=10):
    """Time of a repetition's kernels, and the longest one's name."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for n in range(repetitions):
            flush.fill_(1.0)
            run(*pool[n % len(pool)])
        torch.cuda.synchronize()
    # The flush is the one kernel that fills a buffer.
    rows = [(e.name, e.device_time_total) for e in seen.events() if e.device_time_total > 0]
    rows = [(name, us) for name, us in rows if "fill" not in name.lower() and not name.startswith("cuda")]
    if not rows:
        return None, None
    return sum(us for _, us in rows) * 1e3 / repetitions, max(rows, key=lambda row: row[1])[0]


def kernels():
    path = os.path.join(options.out, "kernels.json")
    if not os.path.exists(path):
        return []
    compared = []
    for row in json.load(open(path))["rows"]:
        sizes = dict((name, int(value)) for name, value in (size.split("=") for size in row["shape"].split()))
        made = operation(row["op"], DTYPES.get(row["dtype"]), sizes) if row["dtype"] in DTYPES else None
        if made is None or row["median_ns"] is None:
            continue
        inputs, run = made
        pool = [inputs() for _ in range(3)]
        with torch.no_grad():
            elapsed, n = median_ns(pool, run)
            kernel, name = kernels_ns(pool, run)
        ratio = lambda theirs, ours: theirs / ours if theirs and ours else None
        compared.append({
            "what": "kernel", "op": row["op"], "dtype": row["dtype"], "shape": row["shape"], "n": n,
            "candle": row["median_ns"], "torch": elapsed, "torch_over_candle": ratio(elapsed, row["median_ns"]),
            "candle_kernels": row["kernel_ns"], "torch_kernels": kernel,
            "torch_over_candle_kernels": ratio(kernel, row["kernel_ns"]), "torch_kernel": name,
        })
        del pool
    return compared


def product(dtype, m, n, k, seconds):
    """FLOP/s of products for this time without a break."""
    a, b = values(m, k, dtype=dtype), values(k, n, dtype=dtype)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    count, began = 0, time.perf_counter()
    begin.record()
    while True:
        for _ in range(16):
            torch.mm(a, b)
        count += 16
        if time.perf_counter() - began >= seconds:
            break
        torch.cuda.synchronize()
    end.record()
    end.synchronize()
    return 2 * m * n * k * count / (begin.elapsed_time(end) / 1e3)


def peaks():
    path = os.path.join(options.out, "peaks.json")
    if not os.path.exists(path):
        return []
    compared = []
    for figure in json.load(open(path))["figures"]:
        row = {"what": "peak", "op": figure["kind"], "dtype": figure.get("dtype"), "shape": figure["at"]}
        if figure["kind"] == "flops" and figure.get("condition"):
            m, n, k = (int(size) for size in figure["at"].split("x"))
            dtype = DTYPES[figure["dtype"]]
            if figure["condition"] == "sustained":
                product(dtype, m, n, k, 1)
                samples = [product(dtype, m, n, k, 5)]
            else:
                samples = []
                for _ in range(3):
                    time.sleep(2)
                    product(dtype, m, n, k, 0.01)
                    samples.append(product(dtype, m, n, k, 0.04))
            row.update(op=f"flops, {figure['condition']}", n=len(samples))
            row.update(candle=figure["value"], torch=statistics.median(samples))
        elif figure["kind"] == "read":
            x = torch.ones(1 << 29, device=device)
            ns, n = median_ns([(x,)], torch.sum)
            row.update(n=n, candle=figure["value"], torch=x.numel() * 4 / ns * 1e9)
            del x
        else:
            row.update(candle=figure["value"], torch=None)
        row["candle_over_torch"] = row["candle"] / row["torch"] if row["torch"] else None
        compared.append(row)
    return compared


rows = peaks() + kernels()
facts = {"device": torch.cuda.get_device_name(device), "torch": torch.__version__, "cuda": torch.version.cuda}
with open(os.path.join(options.out, "torch.json"), "w") as file:
    json.dump({**facts, "rows": rows}, file, indent=1)
columns = list(dict.fromkeys(key for row in rows for key in row))
with open(os.path.join(options.out, "torch.csv"), "w", newline="") as file:
    table = csv.DictWriter(file, columns)
    table.writeheader()
    table.writerows(rows)
print(", ".join(facts.values()))
for row in rows:
    name = " ".join(str(part) for part in (row["op"], row["dtype"], row["shape"]) if part)
    if row["what"] == "peak":
        ratio = f", {row['candle_over_torch']:.3f} of PyTorch's" if row["candle_over_torch"] else ""
        print(f"{name}: {row['candle']:.4g}{ratio}")
    else:
        kernels_ratio = row["torch_over_candle_kernels"]
        kernels_ratio = f"; kernels {kernels_ratio:.3f} ({row['torch_kernel']})" if kernels_ratio else ""
        times = f"{row['candle'] / 1e3:.1f} µs, PyTorch {row['torch'] / 1e3:.1f} µs"
        print(f"{name}: {times}, ratio {row['torch_over_candle']:.3f}{kernels_ratio}")
