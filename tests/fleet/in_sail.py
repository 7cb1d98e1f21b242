"""Times and memory of questions in Sail, in the mode of SAIL_MODE: in_sail.py VIEWS QUESTIONS, for measure.py.

QUESTIONS is JSON, names to SQL. Prints a JSON list for each: name, rows, seconds of the first and of the second time, peak memory in MiB.
"""

import decimal
import json
import os
import sys
import time

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession


def memory():
    with open("/proc/self/status") as file:
        return int(file.read().split("VmHWM:")[1].split()[0]) / 1024


def plain(value):
    return float(value) if isinstance(value, decimal.Decimal) else value


server = SparkConnectServer("127.0.0.1", 0)
server.start(background=True)
spark = SparkSession.builder.remote("sc://127.0.0.1:%d" % server.listening_address[1]).getOrCreate()
for statement in open(sys.argv[1]).read().split(";\n"):
    if statement.strip():
        spark.sql(statement)
for name, sql in json.loads(sys.argv[2]).items():
    took = []
    for _ in range(2):
        began = time.monotonic()
        rows = spark.sql(sql).collect()
        took.append(time.monotonic() - began)
    print(json.dumps([name, [[plain(value) for value in row] for row in rows], took, memory()]), flush=True)
# Sail's threads do not keep the process.
os._exit(0)
