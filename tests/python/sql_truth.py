#!/usr/bin/env python3
"""Computes a report's figures in SQL, from the run's Parquet tables alone, and compares both.

    sql_truth.py RUN        RUN holds metrics.json, as `candlescope report` writes it

Covers every figure of metrics.json that can be computed in SQL: latency, steps and phases, operators, tree, warm-up, samples, utilisation. Exit
status 0 when all agree to nine digits, 1 with a line for each that does not. Nothing here shares code with the analysis.
"""

import json
import pathlib
import sys

import duckdb

run = pathlib.Path(sys.argv[1])
metrics = json.loads((run / "metrics.json").read_text())
manifest = json.loads((run / "run.json").read_text())
db = duckdb.connect()
wrong: list[str] = []
agreed = 0

for table in ("spans", "steps", "requests", "samples", "kernels"):
    if list((run / table).glob("part-*.parquet")):
        db.sql(f"create view all_{table} as select * from read_parquet('{run}/{table}/part-*.parquet')")

# Warm-up: the first requests, as many as the option says; left out of everything.
warmup = int(manifest["options"].get("warmup") or 0)
db.sql(f"create view requests as select * from all_requests where request > {warmup}")
db.sql(f"create view steps as select * from all_steps where request is null or request > {warmup}")
db.sql("""create view spans as
  select *, regexp_replace(path, '\\[[0-9]+\\]', '', 'g') as rollup from all_spans
  where step is null or step in (select step from steps)""")


def one(query):
    rows = db.sql(query).fetchall()
    return rows[0][0] if rows and rows[0] else None


def same(name, sql, printed):
    """Both missing, or both the same but for the order of sums."""
    global agreed
    if sql is None and printed is None:
        agreed += 1
    elif sql is None or printed is None or abs(float(sql) - float(printed)) > 1e-9 * max(abs(float(sql)), 1e-12):
        wrong.append(f"{name}: SQL says {sql}, metrics.json {printed}")
    else:
        agreed += 1


def spread(name, values, printed):
    """`values` is a query with one column `v`."""
    if printed is None:
        same(f"{name} (n)", one(f"select count(v) from ({values})") or None, None)
        return
    median, mean, low, high, n, deviation = db.sql(
        f"select median(v), avg(v), min(v), max(v), count(v), stddev_samp(v) from ({values})").fetchall()[0]
    for key, value in (("median", median), ("mean", mean), ("min", low), ("max", high), ("n", n)):
        same(f"{name}.{key}", value, printed[key])
    if n > 1:
        same(f"{name}.stddev", deviation, printed["stddev"])
    for key, share, needed in (("p90", 0.9, 10), ("p95", 0.95, 20), ("p99", 0.99, 100)):
        value = one(f"select quantile_cont(v, {share}) from ({values})") if n >= needed else None
        same(f"{name}.{key}", value, printed[key])


def union(windows):
    """Length of the union of `windows`, a query with `s` and `e`: gaps and islands."""
    return one(f"""
      with w as ({windows}),
      m as (select *, max(e) over (order by s, e rows between unbounded preceding and 1 preceding) as before from w),
      i as (select *, sum(case when before is null or s >= before then 1 else 0 end) over (order by s, e) as island from m)
      select sum(hi - lo) from (select min(s) as lo, max(e) as hi from i group by island)""")


# Latency, from the requests' own records of their tokens.
figures = metrics["figures"]
own = """select *, output_tokens / coalesce(batch, 1) as each, coalesce(batch, 1) as sequences from requests"""
spread("ttft", f"select ttft_ns as v from ({own})", figures.get("ttft"))
spread("e2e", f"select last_token_ns as v from ({own})", figures.get("e2e"))
spread("tpot", f"select (last_token_ns - ttft_ns) / (each - 1) as v from ({own}) where each > 1", figures.get("tpot"))
spread("queue", f"select queue_ns as v from ({own}) where queue_ns is not null", figures.get("queue"))
spread("decode_tps",
       f"select (output_tokens - sequences) * 1e9 / (last_token_ns - ttft_ns) as v from ({own}) where each > 1",
       figures.get("decode_tps"))
spread("prefill_tps", """select sum(coalesce(new_tokens, tokens)) * 1e9 / sum(host_dur_ns) as v from steps
       where phase = 'prefill' and request is not null group by request""", figures.get("prefill_tps"))
same("output_tps", one("""select sum(output_tokens) * 1e9 / (max(host_start_ns + host_dur_ns) - min(host_start_ns))
       from requests"""), figures["output_tps"]["value"])
for row in metrics["requests"]["rows"]:
    sql = db.sql(f"select ttft_ns, last_token_ns, host_dur_ns from all_requests where request = {row['request']}").fetchall()[0]
    for key, value in zip(("ttft_ns", "e2e_ns", "dur_ns"), sql):
        same(f"request {row['request']}.{key}", value, row[key])
    same(f"request {row['request']}.warmup", int(row["request"] <= warmup), int(row["warmup"]))

# Steps and phases: rates are over the time in which at least one step of the kind was open.
outermost = "select * from spans where step is not null and (parent_seq is null or parent_seq in (select seq from all_spans where step is null))"
whole = one(f"select sum(host_dur_ns) from ({outermost})")
known = lambda column: f"case when count({column}) = count(*) then sum({column}) end"
for row in metrics["phases"]["rows"]:
    name = row["name"]
    of = f"from steps where coalesce(phase, path) = '{name}'"
    steps, total, tokens, flops, executed, moved, io = db.sql(f"""select count(*), sum(host_dur_ns),
        coalesce({known('new_tokens')}, {known('tokens')}), {known('flops')}, {known('flops_executed')}, {known('bytes')},
        {known('io_bytes')} {of}""").fetchall()[0]
    open_ns = union(f"select host_start_ns as s, host_start_ns + host_dur_ns as e {of}")
    over = lambda work, scale=1: None if work is None else work / open_ns * scale
    for key, value in (
        ("steps", steps), ("total_ns", total), ("share", total / whole), ("tokens", tokens), ("flops", flops),
        ("flops_executed", executed), ("bytes", moved), ("io_bytes", io), ("union_ns", open_ns),
        ("steps_at_once", total / open_ns), ("tokens_per_s", over(tokens, 1e9)), ("gflops", over(flops)),
        ("gflops_executed", over(executed)), ("gbytes", over(moved)), ("io_gbytes", over(io)),
        ("intensity", flops / io if flops is not None and io else None),
        ("intervals", one(f"select sum(intervals) {of}")),
    ):
        same(f"{name}.{key}", value, row[key])
    duration = row["duration_ns"]
    same(f"{name}.duration.median", one(f"select median(host_dur_ns) {of}"), duration["median"])
    same(f"{name}.duration.max", one(f"select max(host_dur_ns) {of}"), duration["max"])
    for use in metrics["utilisation"]:
        if use["phase"] == name and use["over"] == "wall":
            work = {"mfu": flops, "hfu": executed, "mbu": moved}[use["metric"]]
            same(f"{name}.{use['metric']}", over(work, 1e9) / (use["peak"] * use["devices"]), use["value"])
same("in_steps_ns", union("select host_start_ns as s, host_start_ns + host_dur_ns as e from steps"), metrics["phases"]["in_steps_ns"])
both = "select host_start_ns as s, host_start_ns + host_dur_ns as e from {}"
same("wall_ns", one(f"select max(e) - min(s) from ({both.format('steps')} union all {both.format('requests')})"),
     metrics["phases"]["wall_ns"])

# Operators: self time is an interval's less that of the intervals entered in it.
db.sql("""create table own as
  select s.seq, s.rollup, s.host_dur_ns as total, s.host_dur_ns - coalesce(c.inside, 0) as self, s.flops, s.bytes, s.io_bytes
  from spans s left join (select parent_seq, sum(host_dur_ns) as inside from spans where step is not null group by parent_seq) c
  on c.parent_seq = s.seq where s.step is not null""")
for row in metrics["operators"]:
    path = row["path"].replace("'", "''")
    calls, total, self_ns, low, high = db.sql(
        f"select count(*), sum(total), sum(self), min(total), max(total) from own where rollup = '{path}'").fetchall()[0]
    flops, moved, io = db.sql(f"""select sum(flops), sum(bytes), sum(io_bytes) from own
        where rollup = '{path}' or starts_with(rollup, '{path}/')""").fetchall()[0]
    for key, value in (
        ("calls", calls), ("total_ns", total), ("self_ns", self_ns), ("min_ns", low), ("max_ns", high), ("flops", flops),
        ("bytes", moved), ("io_bytes", io), ("self_share", self_ns / whole), ("total_share", total / whole),
        ("gflops", flops / total if flops is not None else None), ("gbytes", io / total if io is not None else None),
        ("intensity", flops / io if flops is not None and io else None),
    ):
        same(f"{row['path']}.{key}", value, row[key])
same("tree.total_ns", whole, metrics["tree"]["total_ns"])
same("shares of self time", sum(row["self_share"] for row in metrics["operators"]), 1.0)

# Warm-up, listed apart.
same("warmup.steps", one(f"select count(*) from all_steps where request <= {warmup}"), metrics["warmup"]["steps"])
same("warmup.intervals", one(f"select count(*) from all_spans where step in (select step from all_steps where request <= {warmup})"),
     metrics["warmup"]["intervals"])
for row in metrics["warmup"]["rows"]:
    same(f"warmup.{row['name']}.total_ns", one(
        f"select sum(host_dur_ns) from all_steps where request <= {warmup} and coalesce(phase, path) = '{row['name']}'"), row["total_ns"])

# Samples.
for row in metrics["samples"]:
    of = f"from all_samples where device = '{row['device']}' and metric = '{row['metric']}'"
    n, low, mean, high = db.sql(f"select count(*), min(value), avg(value), max(value) {of}").fetchall()[0]
    for key, value in (("n", n), ("min", low), ("mean", mean), ("max", high)):
        same(f"{row['metric']}.{key}", value, row[key])

for line in wrong:
    print(line, file=sys.stderr)
print(f"{agreed} figures agree, {len(wrong)} do not")
sys.exit(1 if wrong or agreed < 100 else 0)
