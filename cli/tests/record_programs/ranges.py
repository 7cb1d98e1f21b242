"""A Python program with NVTX's own package, for `candlescope record`."""

import os
import threading
import time

import nvtx


@nvtx.annotate("linear", domain="model", color="red", payload=3)
def linear():
    time.sleep(0.001)


def decode(tokens):
    for token in range(tokens):
        with nvtx.annotate(f"decode {token}", domain="model"):
            for layer in range(2):
                with nvtx.annotate(f"layer {layer}", domain="model"):
                    linear()


decode(4)
thread = threading.Thread(target=decode, args=(2,))
thread.start()
thread.join()
nvtx.end_range(nvtx.start_range("request", domain="model"))
# A worker of Python's multiprocessing: forked, and ended by _exit.
if os.fork() == 0:
    decode(3)
    os._exit(0)
os.wait()
os._exit(6)
