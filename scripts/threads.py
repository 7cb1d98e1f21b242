#!/usr/bin/env python3
"""What an unset RAYON_NUM_THREADS costs a program with candle: one program, the variable unset, 1 and 2, in turns.

    scripts/threads.py PROGRAM [ROUNDS] [-- MORE OPTIONS OF PROFILE]

PROGRAM is a candlescope that leaves the variable alone (0.1 before `--threads`), or any program that takes the options of
`profile` and prints its metrics with --json. Prints the median time per output token of each round, ratios by round, and their
median with its range."""
import json, os, random, statistics, subprocess, sys, tempfile

arguments = sys.argv[1:]
more = arguments[arguments.index("--") + 1:] if "--" in arguments else []
arguments = arguments[:arguments.index("--")] if "--" in arguments else arguments
program, rounds = arguments[0], int(arguments[1]) if len(arguments) > 1 else 8
arms = {"unset": None, "1": "1", "2": "2"}
random.seed(1)
found = []
for n in range(rounds):
    one = {}
    for arm in random.sample(list(arms), len(arms)):
        environment = {k: v for k, v in os.environ.items() if k not in ("RAYON_NUM_THREADS", "CANDLE_NUM_THREADS")}
        if arms[arm]:
            environment["RAYON_NUM_THREADS"] = arms[arm]
        with tempfile.TemporaryDirectory() as folder:
            told = subprocess.run([program, "profile", "--json", "--out", f"{folder}/run", *more], env=environment,
                                  check=True, capture_output=True, text=True).stdout
        metrics = json.loads(told)["metrics"]
        one[arm] = metrics["figures"]["tpot"]["median"] / 1e6
    found.append(one)
    print(n + 1, {arm: round(ms, 3) for arm, ms in one.items()}, flush=True)
for arm in arms:
    print(f"{arm:>6}: median {statistics.median(one[arm] for one in found):.3f} ms, least {min(one[arm] for one in found):.3f}")
for arm in ("1", "2"):
    ratios = sorted(one["unset"] / one[arm] for one in found)
    print(f"unset / {arm}: median {statistics.median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}")
