#!/usr/bin/env python3
"""Runs the workspace's tests, several test programs at a time.

    tests/streams.py [--streams N] [cargo's options: --workspace --features …]

`cargo test` runs one test program after the other, and many of ours wait: for processes that they start, for servers, for a session's end.
Here N run side by side (two, or a core each up to four), those that take long first. What measures time (QUIET) runs by itself at the end.
What fails beside others runs once more by itself, and the end says so: it counts as passed if that passes. Doctests are cargo's.

(cargo-nextest would start a process for every single test; ours share runs that they record once in a program.)
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# They measure times, instructions or what a machine does meanwhile.
QUIET = ["instructions", "stacks_cost", "perturb", "cost", "threads", "sampled_rates", "rayon_threads", "tensor_parallel", "skill"]
# Minutes each: begun first, so that no long one is left for the end.
LONG = ["recorded", "notebooks", "archive", "archive_processes", "hostile_files", "engines", "nsys", "docs", "every_query", "optimise", "long_run", "object_store", "bench", "json_schemas"]
SUMMARY = "test result: "
# What cargo sets for tests: libraries that build scripts made lie beside the programs.
SYSROOT = subprocess.run(["rustc", "--print", "target-libdir"], capture_output=True, text=True, check=True).stdout.strip()
LIBRARIES = [str(ROOT / "target/debug/deps"), str(ROOT / "target/debug"), SYSROOT, os.environ.get("LD_LIBRARY_PATH", "")]
ENVIRONMENT = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, LIBRARIES)))


def build(options):
    """The test programs: name, path, folder to run in."""
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    programs = []
    for line in process.stdout:
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            folder = Path(message["manifest_path"]).parent
            name = message["target"]["name"]
            kind = message["target"]["kind"][0]
            crate = folder.relative_to(ROOT).as_posix()
            programs.append((name if kind == "test" else f"{crate} ({kind} {name})", message["executable"], folder, name if kind == "test" else None))
    if process.wait() != 0:
        sys.exit(process.returncode)
    return programs


def run(program):
    """Whether it passed, what it printed, its results' line, seconds."""
    name, path, folder, _ = program
    began = time.monotonic()
    done = subprocess.run([path], cwd=folder, env=ENVIRONMENT | {"CARGO_MANIFEST_DIR": str(folder)}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace")
    result = next((line for line in reversed(text.splitlines()) if line.startswith(SUMMARY)), f"{SUMMARY}none, exit status {done.returncode}")
    return done.returncode == 0, text, result, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--streams", type=int, default=max(2, min(4, os.cpu_count() or 2)))
    args, options = parser.parse_known_args()
    began = time.monotonic()
    programs = build(options)
    print(f"{len(programs)} test programs built in {time.monotonic() - began:.0f} s", flush=True)
    order = {name: at for at, name in enumerate(LONG)}
    waiting = sorted((p for p in programs if p[3] not in QUIET), key=lambda p: order.get(p[3], len(order)))
    alone = [p for p in programs if p[3] in QUIET]
    lock = threading.Lock()
    again, failed = [], []

    def told(program, passed, text, result, seconds):
        with lock:
            if not passed:
                print(text)
            print(f"{program[0]}: {result.removeprefix(SUMMARY)} ({seconds:.0f} s)", flush=True)

    def stream():
        while True:
            with lock:
                if not waiting:
                    return
                program = waiting.pop(0)
            try:
                outcome = run(program)
            except Exception as error:  # it was not run: once more, by itself
                print(f"{program[0]}: {error}", file=sys.stderr, flush=True)
                again.append(program)
                continue
            told(program, *outcome)
            if not outcome[0]:
                again.append(program)

    threads = [threading.Thread(target=stream, name=f"tests-{n}") for n in range(args.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    beside = [program[0] for program in again]
    failed += [f"{program[0]}: not run" for program in waiting]
    for program in alone + again:
        outcome = run(program)
        told(program, *outcome)
        if not outcome[0]:
            failed.append(program[0])
    print(f"all test programs in {time.monotonic() - began:.0f} s", flush=True)
    doc = subprocess.run(["cargo", "test", "--doc", "--no-fail-fast", *options], cwd=ROOT).returncode
    for name in beside:
        if name not in failed:
            print(f"passed by itself only, not beside others: {name}", file=sys.stderr)
    for name in failed:
        print(f"FAILED: {name}", file=sys.stderr)
    print(f"{time.monotonic() - began:.0f} s in all")
    sys.exit(1 if failed else doc)


if __name__ == "__main__":
    main()
