#!/usr/bin/env python3
"""PyTorch that starts, multiplies and ends, for `candlescope record`, which knows nothing of it.

    record_starts.py process         one thread on the first device
    record_starts.py threads [N]     N threads (8) at once, on all devices in turn, a stream each

200 products each, of which the host reads ten. What fails is said by the exception; the status is 1 then.
"""
import sys
import threading

import torch

mode = sys.argv[1]
count = int(sys.argv[2]) if len(sys.argv) > 2 else 8
failed = []


def work(number):
    try:
        device = torch.device("cuda", number % torch.cuda.device_count())
        torch.cuda.set_device(device)
        with torch.cuda.stream(torch.cuda.Stream(device)), torch.no_grad():
            x = torch.eye(256, device=device)
            y = torch.full((256, 256), 0.5, device=device)
            for step in range(200):
                y = x @ y
                if step % 20 == 0 and y.sum().item() != 32768:
                    raise RuntimeError(f"the sum of thread {number} in step {step} is {y.sum().item()}, not 32768")
            torch.cuda.current_stream().synchronize()
    except BaseException as error:
        failed.append(f"thread {number}: {type(error).__name__}: {error}")


if mode == "process":
    work(0)
elif mode == "threads":
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
else:
    sys.exit(__doc__)
print("\n".join(failed), file=sys.stderr, end="\n" if failed else "")
sys.exit(1 if failed else 0)
