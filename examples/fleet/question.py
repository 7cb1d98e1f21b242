"""A question to runs in Spark's SQL: question.py VIEWS SQL, where VIEWS is what `candlescope views spark` writes.

Starts Sail in this process, in the mode of SAIL_MODE; with SPARK_REMOTE=sc://host:50051 it asks the server there, Sail's or Spark's.
"""

import os
import sys

from pyspark.sql import SparkSession

views, sql = open(sys.argv[1]).read(), sys.argv[2]
address = os.environ.get("SPARK_REMOTE")
if not address:
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    address = "sc://127.0.0.1:%d" % server.listening_address[1]
spark = SparkSession.builder.remote(address).getOrCreate()
for statement in views.split(";\n"):
    if statement.strip():
        spark.sql(statement)
spark.sql(sql).show(1000, truncate=False)
sys.stdout.flush()
# Sail's threads do not keep the process.
os._exit(0)
