#!/usr/bin/env python3
"""Two GPUs in PyTorch, for `candlescope record`, which knows nothing of it.

    torchrun --nproc_per_node 2 record_ranks.py ranks [--slow RANK]    a process a GPU: layers of matrices split in two, an all-reduce after each
    record_ranks.py threads                                            one process: a thread a GPU, each by itself

Each step fetches a result. With --slow this rank multiplies every matrix twice. Prints `RESULT {json}`: milliseconds a step (median).
"""
import argparse
import json
import os
import statistics
import threading
import time

import torch

options = argparse.ArgumentParser()
options.add_argument("mode", choices=["ranks", "threads"])
options.add_argument("--slow", type=int)
options.add_argument("--steps", type=int, default=60)
options.add_argument("--layers", type=int, default=16)
options = options.parse_args()
HIDDEN = 4096


def work(device, reduce, passes):
    torch.cuda.set_device(device)
    weights = [torch.randn(HIDDEN, HIDDEN // 2, device=device, dtype=torch.bfloat16) * 0.01 for _ in range(options.layers)]
    back = [torch.randn(HIDDEN // 2, HIDDEN, device=device, dtype=torch.bfloat16) * 0.01 for _ in range(options.layers)]
    x = torch.randn(64, HIDDEN, device=device, dtype=torch.bfloat16)
    times = []
    for _ in range(options.steps):
        begun = time.perf_counter()
        torch.cuda.nvtx.range_push("decode")
        for number, (into, out) in enumerate(zip(weights, back)):
            torch.cuda.nvtx.range_push(f"layer {number}")
            for _ in range(passes):
                y = torch.relu(x @ into) @ out
            reduce(y)
            x = torch.nn.functional.layer_norm(x + y, (HIDDEN,))
            torch.cuda.nvtx.range_pop()
        x.float().sum().item()
        torch.cuda.nvtx.range_pop()
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


with torch.no_grad():
    if options.mode == "ranks":
        import torch.distributed

        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
        ms = work(rank, torch.distributed.all_reduce, 2 if options.slow == rank else 1)
        torch.distributed.destroy_process_group()
        print("RESULT", json.dumps({"rank": rank, "ms": ms}), flush=True)
    else:
        found = [None, None]
        threads = [threading.Thread(target=lambda n=n: found.__setitem__(n, work(n, lambda _: None, 1))) for n in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print("RESULT", json.dumps({"ms": found}), flush=True)
