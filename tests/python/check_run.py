#!/usr/bin/env python3
"""Reads a run with DuckDB and Polars and compares it with run.json.

    check_run.py RUN [--json]

Checks that both engines count the rows run.json says were exported, that every parent_seq that should be there is there and
encloses its children, that steps match their intervals, and that the account adds up. Exit status 0 when all of it holds, 1 with
one line for each thing that does not.
"""

import argparse
import json
import pathlib
import sys

import duckdb
import polars as pl

TABLES = ("spans", "steps", "requests", "samples")


def count(run: pathlib.Path, table: str) -> tuple[int, int, int]:
    """Rows of a table by DuckDB and by Polars, and its number of finished segments."""
    segments = sorted(str(p) for p in (run / table).glob("part-*.parquet"))
    if not segments:
        return 0, 0, 0
    rows = duckdb.sql(f"select count(*) from read_parquet({segments!r})").fetchall()[0][0]
    # Reads every column, so that damaged pages are found.
    frame = pl.read_parquet(segments)
    return rows, frame.height, len(segments)


def check_tables(run: pathlib.Path, manifest: dict, say) -> dict:
    exporter = next((e for e in manifest["exporters"] if e["name"] == "parquet"), None)
    if manifest["complete"] and exporter is None:
        say("run.json has no account of the parquet exporter")
    counts = {}
    for table in TABLES:
        by_duckdb, by_polars, segments = count(run, table)
        counts[table] = {"duckdb": by_duckdb, "polars": by_polars, "segments": segments}
        if by_duckdb != by_polars:
            say(f"{table}: DuckDB counts {by_duckdb} rows, Polars {by_polars}")
        if exporter is None:
            continue
        exported = exporter["exported"].get(table, 0)
        received = exporter["received"].get(table, 0)
        dropped = sum(exporter["dropped"].get(table, {}).values())
        if by_duckdb != exported:
            say(f"{table}: {by_duckdb} rows on disk, run.json says {exported} were exported")
        if received != exported + dropped:
            say(f"{table}: received {received} is not exported {exported} + dropped {dropped}")
        if manifest["counts"].get(table, received) != received:
            say(f"{table}: counts say {manifest['counts'][table]}, the exporter received {received}")
    return counts


def check_spans(run: pathlib.Path, manifest: dict, say) -> None:
    exporter = next((e for e in manifest["exporters"] if e["name"] == "parquet"), None)
    lost = exporter is None or bool(exporter["dropped"]) or any(
        manifest["loss"].get(k, 0) for k in ("ring_full", "too_deep", "no_ring", "after_shutdown", "open_at_end")
    )
    connection = duckdb.connect()
    connection.sql(f"create view spans as select * from read_parquet('{run}/spans/part-*.parquet')")
    one = lambda query: connection.sql(query).fetchall()[0][0]
    # What a CUDA graph replayed was not entered: it has no time on the host, and no step counts it.
    entered = "graph is null" if "graph" in connection.sql("select * from spans limit 0").columns else "true"

    twice = one("select count(*) - count(distinct seq) from spans")
    if twice:
        say(f"spans: {twice} rows share their seq with another")
    orphans = one("select count(*) from spans c left join spans p on c.parent_seq = p.seq"
                  " where c.parent_seq is not null and p.seq is null")
    # A run that lost records, or is not over, may lack parents; one that lost none may not.
    if orphans and not lost:
        say(f"spans: {orphans} rows name a parent_seq that no row has, and no loss is on record")
    joined = "spans c join spans p on c.parent_seq = p.seq"
    outside = one(f"select count(*) from {joined} where c.host_start_ns < p.host_start_ns"
                  " or c.host_start_ns + c.host_dur_ns > p.host_start_ns + p.host_dur_ns")
    if outside:
        say(f"spans: {outside} rows do not lie inside their parent's time")
    for column in ("thread", "trace_id"):
        differ = one(f"select count(*) from {joined} where c.{column} <> p.{column}")
        if differ:
            say(f"spans: {differ} rows have another {column} than their parent")
    depth = one(f"select count(*) from {joined} where c.depth <> p.depth + 1")
    if depth:
        say(f"spans: {depth} rows are not one deeper than their parent")
    negative = one("select count(*) from spans where host_dur_ns < 0 or gpu_dur_ns < 0")
    if negative:
        say(f"spans: {negative} rows have a negative duration")
    overlap = one("select count(*) from (select host_start_ns as start, lag(host_start_ns + host_dur_ns) over"
                  " (partition by thread, parent_seq order by host_start_ns, seq) as before from spans"
                  f" where parent_seq is not null and {entered}) where start < before")
    if overlap:
        say(f"spans: {overlap} rows begin before the sibling before them ended")

    if list((run / "steps").glob("part-*.parquet")) and not lost:
        connection.sql(f"create view steps as select * from read_parquet('{run}/steps/part-*.parquet')")
        wrong = one("select count(*) from steps s left join (select step, count(*) as n from spans"
                    f" where {entered} group by step) c"
                    " using (step) where coalesce(c.n, 0) <> s.intervals")
        if wrong:
            say(f"steps: {wrong} rows say another number of intervals than spans has")
        astray = one("select count(*) from steps s left join spans i using (seq)"
                     " where i.seq is null or i.host_start_ns <> s.host_start_ns")
        if astray:
            say(f"steps: {astray} rows have no interval with their seq and start")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")
    arguments = parser.parse_args()
    manifest_path = arguments.run / "run.json"
    if not manifest_path.is_file():
        print(f"{manifest_path} is missing: is {arguments.run} a run?", file=sys.stderr)
        return 1
    manifest = json.loads(manifest_path.read_text())
    problems: list[str] = []
    counts = check_tables(arguments.run, manifest, problems.append)
    if counts["spans"]["duckdb"]:
        check_spans(arguments.run, manifest, problems.append)
    for problem in problems:
        print(problem, file=sys.stderr)
    if arguments.json:
        print(json.dumps({"ok": not problems, "counts": counts, "problems": problems}))
    elif not problems:
        print(", ".join(f"{counts[t]['duckdb']} {t}" for t in TABLES) + ": DuckDB, Polars and run.json agree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
