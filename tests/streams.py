#!/usr/bin/env python3
"""Runs the workspace's tests, several test programs at a time.

    tests/streams.py [--streams N] [cargo's options: --workspace --features …]

`cargo test` runs one test program after the other, and many of ours wait: for processes that they start, for servers, for a session's end.
Here N run side by side (two, or a core each up to four), those that take long first, and one more that hardly computes (WAITING). The
doctests, which are cargo's, are one of them. What measures time (QUIET) runs by itself at the end. What fails beside others runs once
more by itself, and the end says so: it counts as passed if that passes.

What tests write lies in memory where there is room, for a run and an archive are made durable file by file: `TMPDIR` names another place.

(cargo-nextest would start a process for every single test; ours share runs that they record once in a program.)
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# They measure times, instructions or what a machine does meanwhile.
QUIET = ["instructions", "stacks_cost", "perturb", "cost", "threads", "sampled_rates", "rayon_threads", "tensor_parallel", "skill"]
# Half a minute and more, the longest first: begun first, so that no long one is left for the end.
LONG = ["engines", "recorded", "archive", "optimise", "hostile_files", "json_schemas", "archive_processes", "record", "analysis", "notebooks", "stacks_truth", "stacks_hostile", "object_store", "smollm2", "modules", "prometheus", "host_truth"]
# They wait for clocks, limits and servers, and leave the processors to others.
WAITING = ["soak_short", "hostile_clients", "load", "gpu", "serving", "nsys", "capture", "otlp_jaeger", "otlp_server", "otlp_metrics", "otlp_grpc", "services", "monitor", "counted", "journey", "gate_live"]
DOCTESTS = "doctests"
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


def in_memory():
    """A folder in memory for what tests write, which programs can be started from; None where there is little room or `TMPDIR` says."""
    place = Path("/dev/shm")
    if "TMPDIR" in os.environ or not place.is_dir():
        return None
    found = os.statvfs(place)
    available = next(int(line.split()[1]) << 10 for line in open("/proc/meminfo") if line.startswith("MemAvailable:"))
    if found.f_flag & os.ST_NOEXEC or min(found.f_bavail * found.f_frsize, available) < 8 << 30:
        return None
    folder = tempfile.TemporaryDirectory(prefix="cs-", dir=place, ignore_cleanup_errors=True)
    # As /tmp is: some tests run programs as another user.
    os.chmod(folder.name, 0o1777)
    return folder


def run(program, options):
    """Whether it passed, what it printed, its results' line, seconds."""
    name, path, folder, _ = program
    command, environment = [path], ENVIRONMENT | {"CARGO_MANIFEST_DIR": str(folder)}
    if name == DOCTESTS:
        command, environment = ["cargo", "test", "--doc", "--no-fail-fast", *options], None
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace")
    results = [line for line in text.splitlines() if line.startswith(SUMMARY)] or [f"{SUMMARY}none, exit status {done.returncode}"]
    result = results[-1] if name != DOCTESTS else f"{SUMMARY}{len(results)} crates, exit status {done.returncode}"
    return done.returncode == 0, text, result, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--streams", type=int, default=max(2, min(4, os.cpu_count() or 2)))
    args, options = parser.parse_known_args()
    began = time.monotonic()
    programs = build(options)
    print(f"{len(programs)} test programs built in {time.monotonic() - began:.0f} s", flush=True)
    order = {name: at for at, name in enumerate(LONG)}
    alone = [p for p in programs if p[3] in QUIET]
    patient = [p for p in programs if p[3] in WAITING]
    waiting = sorted((p for p in programs if p not in alone and p not in patient), key=lambda p: order.get(p[3], len(order)))
    waiting.insert(0, (DOCTESTS, None, ROOT, None))
    folder = in_memory()
    if folder:
        ENVIRONMENT["TMPDIR"] = folder.name
    lock = threading.Lock()
    again, failed = [], []

    def told(program, passed, text, result, seconds):
        with lock:
            if not passed:
                print(text)
            print(f"{program[0]}: {result.removeprefix(SUMMARY)} ({seconds:.0f} s)", flush=True)

    def stream(waiting):
        while True:
            with lock:
                if not waiting:
                    return
                program = waiting.pop(0)
            try:
                outcome = run(program, options)
            except Exception as error:  # it was not run: once more, by itself
                print(f"{program[0]}: {error}", file=sys.stderr, flush=True)
                again.append(program)
                continue
            told(program, *outcome)
            if not outcome[0]:
                again.append(program)

    streams = [waiting] * args.streams + [patient]
    threads = [threading.Thread(target=stream, args=[of], name=f"tests-{n}") for n, of in enumerate(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    beside = [program[0] for program in again]
    failed += [f"{program[0]}: not run" for program in waiting + patient]
    for program in alone + again:
        outcome = run(program, options)
        told(program, *outcome)
        if not outcome[0]:
            failed.append(program[0])
    for name in beside:
        if name not in failed:
            print(f"passed by itself only, not beside others: {name}", file=sys.stderr)
    for name in failed:
        print(f"FAILED: {name}", file=sys.stderr)
    print(f"{time.monotonic() - began:.0f} s in all")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
