#!/usr/bin/env python3
"""Answers queries in DuckDB and in Spark SQL, the latter by Sail, which needs no JVM; where CANDLESCOPE_SPARK is `plain`, by Apache Spark
itself in this process (`pyspark`, which needs Java).

Reads one JSON object: {"duckdb": {"script": of views, "queries": {name: SQL}}, "spark": the same for Spark}. Prints one:
{"duckdb": {name: answer}, "spark": …}, an answer being {"columns": […], "rows": [[…]]} or {"error": text}.
"""

import contextlib
import decimal
import gc
import json
import os
import sys
import warnings

# Says which version of pandas it would rather have.
warnings.filterwarnings("ignore", category=FutureWarning)

import duckdb


def plain(value):
    return float(value) if isinstance(value, decimal.Decimal) else value


def answers(queries, ask):
    found = {}
    for name, sql in queries.items():
        try:
            columns, rows = ask(sql)
            found[name] = {"columns": columns, "rows": [[plain(value) for value in row] for row in rows]}
        except Exception as error:  # each engine has its own; all are told
            found[name] = {"error": str(error)}
    return found


def in_duckdb(script, queries):
    db = duckdb.connect()
    db.execute(script)

    def ask(sql):
        answer = db.sql(sql)
        return answer.columns, answer.fetchall()

    return answers(queries, ask)


@contextlib.contextmanager
def sail():
    os.environ.setdefault("RUST_LOG", "error")
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    session = SparkSession.builder.remote("sc://127.0.0.1:%d" % server.listening_address[1]).getOrCreate()
    yield session
    session.stop()
    server.stop()


@contextlib.contextmanager
def plain_spark():
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    # Few rows: as many partitions as there are by default take longer than the work.
    session = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR").getOrCreate()
    yield session
    session.stop()


def in_spark(script, queries):
    with (plain_spark if os.environ.get("CANDLESCOPE_SPARK") == "plain" else sail)() as session:
        return in_session(session, script, queries)


def in_session(session, script, queries):
    def ask(sql):
        frame = session.sql(sql)
        return frame.columns, [list(row) for row in frame.collect()]

    for statement in script.split(";\n"):
        if statement.strip():
            session.sql(statement)
    return answers(queries, ask)


def main() -> int:
    # Rows are many lists, and none of them refers to itself.
    gc.disable()
    asked = json.load(sys.stdin)
    engines = {"duckdb": in_duckdb, "spark": in_spark}
    found = {name: engine(asked[name]["script"], asked[name]["queries"]) for name, engine in engines.items()}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
