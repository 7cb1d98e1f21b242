#!/usr/bin/env python3
"""Times and memory of questions over many runs: candlescope, DuckDB, Sail with workers.

    tests/fleet/measure.py ROOT --runs 1000 --millions 0.1 [--engines candlescope,duckdb,sail]

Makes RUNS synthetic runs of MILLIONS million intervals (and as many kernels) each, of three models on four machines over a hundred
days, archives them at ROOT/archive as it goes (the runs' directories are removed), and asks each question three times: once with
the system's file cache dropped, if that is allowed, and twice after. Peak memory is that of the process (and of its workers).
Prints a table in Markdown. CANDLESCOPE and SCALE_RUN name the binaries.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
sys.path.append(str(HERE / "tests/python"))
from same_rows import differences

CANDLESCOPE = os.environ.get("CANDLESCOPE", HERE / "target/release/candlescope")
SCALE_RUN = os.environ.get("SCALE_RUN", HERE / "target/release/examples/scale_run")

# Ten questions of docs/sql.md and docs/fleet.md. Those with {run} are of one run; those of `archived`, of the index. What is limited is
# in an order without ties, so that every engine has the same rows.
QUESTIONS = {
    "index: runs of a model since a day": "SELECT count(*) AS runs, median(tpot_ns) AS tpot FROM archived WHERE model_name = 'model-1' AND started_day >= '2026-03-01'",
    "index: by model and version": "SELECT model_name, version, count(*) AS runs, median(decode_step_ns) AS ns FROM archived GROUP BY model_name, version ORDER BY 1, 2",
    "index: verdicts": "SELECT verdict, count(*) AS runs FROM archived GROUP BY verdict ORDER BY 2 DESC",
    "one run: phases": "SELECT phase, count(*) AS steps, median(host_dur_ns) AS ns FROM measured_steps WHERE run = '{run}' GROUP BY phase ORDER BY phase",
    "one run: slowest operators": "SELECT operator, count(*) AS calls, CAST(sum(host_dur_ns) AS BIGINT) AS ns FROM spans WHERE run = '{run}' GROUP BY operator ORDER BY ns DESC, operator LIMIT 10",
    "all: steps by day": "SELECT CAST(floor(host_start_ns / 86400000000000) AS BIGINT) AS day, phase, count(*) AS steps, avg(host_dur_ns) AS ns FROM steps GROUP BY 1, 2 ORDER BY 1, 2",
    "all: operators": "SELECT operator, count(*) AS calls, CAST(sum(host_dur_ns) AS BIGINT) AS ns FROM spans GROUP BY operator ORDER BY ns DESC, operator LIMIT 10",
    "all: kernels by name": "SELECT name, count(*) AS kernels, CAST(sum(gpu_dur_ns) AS BIGINT) AS ns FROM kernels GROUP BY name ORDER BY ns DESC, name LIMIT 10",
    "all: slow steps by machine": "SELECT host, count(*) AS steps FROM steps WHERE host_dur_ns > 10000000 GROUP BY host ORDER BY host",
    "all: requests": "SELECT model_name, count(*) AS requests, avg(ttft_ns) AS ttft FROM requests JOIN runs USING (run) GROUP BY model_name ORDER BY model_name",
}


def run(command, **more):
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    out, err = process.communicate()
    took = time.monotonic() - began
    if process.returncode != 0:
        sys.exit(f"{command}: {err[-2000:]}")
    return out, took


def peak(command):
    """Output, seconds, and peak memory in MiB of a command."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        took = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if process.returncode != 0:
            sys.exit(f"{command}: {err.read().decode()[-2000:]}")
        return out.read().decode(), took, usage.ru_maxrss / 1024


def forget_files():
    try:
        subprocess.run(["sync"], check=True)
        Path("/proc/sys/vm/drop_caches").write_text("1")
        return True
    except OSError:
        return False


def make(root, runs, millions):
    archive = root / "archive"
    batch = root / "runs"
    began = time.monotonic()
    archiving = 0.0
    memory = 0.0
    # What an earlier start has archived stays.
    there = in_candlescope(archive, "SELECT count(*) AS runs FROM archived")[0][0][0] if archive.exists() else 0
    shutil.rmtree(batch, ignore_errors=True)
    for n in range(there, runs):
        subprocess.run(
            [SCALE_RUN, batch / f"run-{n}", str(millions), f"run-{n:04}", f"host-{n % 4}", f"model-{n % 3}", str(n // 10)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if n % 50 == 49 or n == runs - 1:
            _, took, mib = peak([CANDLESCOPE, "archive", batch, "--to", archive])
            archiving += took
            memory = max(memory, mib)
            print(f"{n + 1} runs, {time.monotonic() - began:.0f} s, of these {archiving:.0f} s archiving", file=sys.stderr)
    bytes_of = sum(file.stat().st_size for file in archive.rglob("*.parquet"))
    print(f"archived {runs} runs in {archiving:.0f} s, at most {memory:.0f} MiB; {bytes_of / 1e9:.2f} GB on disk\n")
    return archive


def in_candlescope(archive, sql):
    out, took, mib = peak([CANDLESCOPE, "query", sql, archive, "--json", "--limit", "0"])
    answer = json.loads(out)
    return [[row[name] for name in answer["columns"]] for row in answer["rows"]], took, mib


DUCKDB = """
import decimal, json, sys, time, duckdb, resource
script, sql = open(sys.argv[1]).read(), sys.argv[2]
db = duckdb.connect(config={"memory_limit": "2GB", "temp_directory": sys.argv[3]})
db.execute("SET enable_progress_bar = false")
began = time.monotonic()
db.execute(script)
made = time.monotonic()
answer = db.sql(sql)
rows = answer.fetchall()
took, mib = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
plain = lambda value: float(value) if isinstance(value, decimal.Decimal) else value
print(json.dumps([took, made - began, mib, [[plain(value) for value in row] for row in rows]]))
"""


# Seconds that DuckDB took to make the views, which are part of each of its times, as planning is of ours.
making_views = []


def in_duckdb(script, sql, place):
    out, _ = run([sys.executable, "-c", DUCKDB, str(script), sql, str(place)])
    took, making, mib, rows = json.loads(out)
    making_views.append(making)
    return rows, took, mib


# The rows of each question, as the engine that was asked first has them, and which that is.
answers = {}


def hold(name, engine, rows):
    """Ends the program where an answer is not that of the engine before."""
    first, expected = answers.setdefault(name, (engine, rows))
    here, there = differences(expected, rows)
    if here or there:
        sys.exit(f"{name}: only {first} has {here[:3]}, only {engine} {there[:3]} ({len(here)} and {len(there)} rows)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--millions", type=float, default=0.1)
    parser.add_argument("--engines", default="candlescope,duckdb")
    parser.add_argument("--workers", default="1,2,4")
    args = parser.parse_args()
    args.root.mkdir(parents=True, exist_ok=True)
    archive = make(args.root, args.runs, args.millions)
    counts, _, _ = in_candlescope(archive, "SELECT count(*) AS runs, sum(rows_spans) AS spans, sum(rows_kernels) AS kernels FROM archived")
    print("Runs, intervals, kernels:", *counts[0], "\n")
    one = f"run-{args.runs // 2:04}"
    engines = args.engines.split(",")
    scripts = {}
    for engine in ("duckdb", "spark"):
        scripts[engine] = args.root / f"{engine}.sql"
        scripts[engine].write_text(run([str(CANDLESCOPE), "views", engine, str(archive)])[0])
    heads = ["question", "rows"]
    asks = {}
    if "candlescope" in engines:
        asks["candlescope"] = lambda sql: in_candlescope(archive, sql)
    if "duckdb" in engines:
        asks["DuckDB"] = lambda sql: in_duckdb(scripts["duckdb"], sql, args.root)
    for name in asks:
        heads += [f"{name} cold, s", "warm, s", "MiB"]
    if "DuckDB" in asks and "candlescope" in asks:
        heads.append("warm, ratio")
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for name, sql in QUESTIONS.items():
        sql = sql.replace("{run}", one)
        cells = []
        warm = {}
        for engine, ask in asks.items():
            was_cold = forget_files()
            found, cold, memory = ask(sql)
            again = [ask(sql) for _ in range(2)]
            for rows in [found] + [rows for rows, _, _ in again]:
                hold(name, engine, rows)
            warm[engine] = min(took for _, took, _ in again)
            memory = max([memory] + [mib for _, _, mib in again])
            cells += [f"{cold:.2f}" if was_cold else "–", f"{warm[engine]:.2f}", f"{memory:.0f}"]
        if len(warm) == 2:
            cells.append(f"{warm['candlescope'] / warm['DuckDB']:.2f}")
        rows = len(answers[name][1]) if name in answers else 0
        print("| " + " | ".join([name, str(rows)] + cells) + " |", flush=True)
    if making_views:
        print(f"\nOf DuckDB's time {sorted(making_views)[len(making_views) // 2]:.2f} s are for making the views (median).")
    if "sail" in engines:
        in_sail(scripts["spark"], one, args.workers.split(","))


def in_sail(script, one, workers):
    asked = json.dumps({name: sql.replace("{run}", one) for name, sql in QUESTIONS.items()})
    print("\n| question | workers | rows | first, s | again, s | MiB so far |\n|---|---|---|---|---|---|")
    for count in workers:
        env = dict(os.environ, RUST_LOG="error", SAIL_MODE="local-cluster", SAIL_CLUSTER__WORKER_INITIAL_COUNT=count, SAIL_CLUSTER__WORKER_MAX_COUNT=count)
        out, _ = run([sys.executable, "-W", "ignore", str(HERE / "tests/fleet/in_sail.py"), str(script), asked], env=env)
        for line in out.splitlines():
            name, rows, took, memory = json.loads(line)
            hold(name, f"Sail with {count} workers", rows)
            print(f"| {name} | {count} | {len(rows)} | {took[0]:.2f} | {took[1]:.2f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
