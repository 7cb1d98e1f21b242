"""A Python program that computes, for its call stacks: to be run with `-X perf`. It does what the driver does in cuInit."""

import ctypes
import os
import time

ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()


def inner(n):
    total = 0
    for i in range(n):
        total += i * i % 7
    return total


def outer(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        inner(50_000)


outer(2)
