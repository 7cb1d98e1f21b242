"""Holds answers against the schemas of docs/schemas: {"NAME of a schema": [answer, …], …} on standard input.

Answers pass, and the same answers with a field more, in any of their objects whose fields are listed, do not."""

import json
import pathlib
import sys

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

FOLDER = pathlib.Path(__file__).parents[2] / "docs/schemas"
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
NAMES = Registry().with_resources((f"{name}.json", Resource.from_contents(schema)) for name, schema in SCHEMAS.items())


def wrong(schema, answer):
    return [f"{error.json_path}: {error.message[:200]}" for error in Draft202012Validator(schema, registry=NAMES).iter_errors(answer)]


for name, schema in SCHEMAS.items():
    Draft202012Validator.check_schema(schema)
asked = json.load(sys.stdin)
failed = [f"there is no schema {name}" for name in asked if name not in SCHEMAS]
failed += [f"no answer was held against {name}" for name in SCHEMAS if not asked.get(name)]
for name, answers in asked.items():
    for answer in answers:
        failed += [f"{name}: {error}" for error in wrong(SCHEMAS.get(name, {}), answer)[:20]]
        if not wrong(SCHEMAS.get(name, {}), {**answer, "a field that no schema knows": 1}):
            failed.append(f"{name}: a field more is not noticed")
print("\n".join(failed))
sys.exit(bool(failed))
