#!/usr/bin/env python3
"""Loads a trace with HolisticTraceAnalysis, asks for what it prints about one rank, and prints the seconds of each as JSON.

    HTA_DISABLE_NS_ROUNDING=1 hta_speed.py FOLDER

FOLDER has the run as `candlescope export kineto` wrote it. Frequent sequences and the critical path, which take HTA minutes to hours
for a trace of this size, are not asked for.
"""

import json
import logging
import resource
import sys
import time
import warnings

logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")

from hta.trace_analysis import TraceAnalysis  # noqa: E402


def main() -> int:
    seconds: dict[str, float] = {}

    def timed(what: str, ask):
        started = time.monotonic()
        answer = ask()
        seconds[what] = time.monotonic() - started
        return answer

    hta = timed("load", lambda: TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True))
    everything = {"visualize": False, "num_kernels": 100_000, "duration_ratio": 1.0, "include_memory_kernels": True}
    timed("temporal", lambda: hta.get_temporal_breakdown(visualize=False))
    timed("idle", lambda: hta.get_idle_time_breakdown(ranks=[0], visualize=False))
    timed("kernels", lambda: hta.get_gpu_kernel_breakdown(**everything))
    timed("launches", lambda: hta.get_cuda_kernel_launch_stats(visualize=False))
    timed("queue", lambda: hta.get_queue_length_summary(ranks=[0]))
    timed("copies", lambda: hta.get_memory_bw_summary(ranks=[0]))
    # What HTA's own processes used is among that of the children.
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in used)
    peak_mb = used[0].ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "total": sum(seconds.values()), "cpu": cpu, "peak_mb": peak_mb}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
