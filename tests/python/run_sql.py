#!/usr/bin/env python3
"""Executes every SQL block of a page in order over tables and views that a script makes, and prints the result of each query.

    run_sql.py PAGE SCRIPT

SCRIPT is what `candlescope views duckdb` writes. Prints one JSON object: heading → rows, each an object by column. Blocks under one heading overwrite each other; statements without a result are left out.
"""

import json
import pathlib
import re
import sys

import duckdb


def main() -> int:
    page, script = (pathlib.Path(path).read_text() for path in sys.argv[1:3])
    db, answers = duckdb.connect(), {}
    db.execute(script)
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading = section.splitlines()[0]
        for block in re.findall(r"^```sql\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE):
            answer = db.sql(block)
            if answer is not None:
                answers[heading] = [dict(zip(answer.columns, row)) for row in answer.fetchall()]
    print(json.dumps(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
