#!/usr/bin/env python3
"""Executes every SQL block of a page in order, with `runs` as given, and prints the result of each query.

    run_sql.py PAGE RUNS

Prints one JSON object: heading → rows, each an object by column. Blocks under one heading overwrite each other; statements without a result are left out.
"""

import json
import pathlib
import re
import sys

import duckdb


def main() -> int:
    page, runs = pathlib.Path(sys.argv[1]).read_text(), sys.argv[2]
    db, answers = duckdb.connect(), {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading = section.splitlines()[0]
        for block in re.findall(r"^```sql\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE):
            answer = db.sql(block.replace("'runs/**", f"'{runs}/**"))
            if answer is not None:
                answers[heading] = [dict(zip(answer.columns, row)) for row in answer.fetchall()]
    print(json.dumps(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
