"""Holds answers against the schemas of docs/schemas: {"NAME of a schema": [answer, …], …} on standard input. With --all,
each schema has to have an answer, and so has each form of a schema that has several (`oneOf`).

Answers pass, and the same answers with a field more do not. Every object of a schema whose fields are listed is closed."""

import json
import pathlib
import sys

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

FOLDER = pathlib.Path(__file__).parents[2] / "docs/schemas"
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
NAMES = Registry().with_resources((f"{name}.json", Resource.from_contents(schema)) for name, schema in SCHEMAS.items())


def reasons(error):
    """What is wrong; where a thing has none of several forms, by the form that it is nearest to."""
    forms = {}
    for inner in error.context or []:
        forms.setdefault(inner.schema_path[0], []).append(inner)
    # One of another type, such as null, is far.
    far = lambda form: any(inner.validator == "type" and not inner.relative_path for inner in form)
    nearest = min(forms.values(), key=lambda form: (far(form), len(form)), default=None)
    return [error] if nearest is None else [reason for inner in nearest for reason in reasons(inner)]


def wrong(schema, answer):
    errors = Draft202012Validator(schema, registry=NAMES).iter_errors(answer)
    return [f"{reason.json_path}: {reason.message[:200]}" for error in errors for reason in reasons(error)]


def unheld_forms(name, answers):
    """Forms of a schema that no answer has."""
    for at, form in enumerate(SCHEMAS[name].get("oneOf", [])):
        if all(wrong({"$ref": f"{name}.json#/oneOf/{at}"}, answer) for answer in answers):
            yield form.get("title", at)


def open_objects(part, place=""):
    """Places in a schema where fields are listed, and others are taken as well."""
    if isinstance(part, list):
        return [found for at, one in enumerate(part) for found in open_objects(one, f"{place}/{at}")]
    if not isinstance(part, dict):
        return []
    # A field may be called `properties`: then its schema stands there, which lists none by names of types.
    listed = isinstance(part.get("properties"), dict) and "type" in part
    own = [place or "/"] if listed and part.get("additionalProperties") is not False else []
    return own + [found for key, one in part.items() for found in open_objects(one, f"{place}/{key}")]


failed = []
for name, schema in SCHEMAS.items():
    Draft202012Validator.check_schema(schema)
    failed += [f"{name}: {place} lists fields, and takes others" for place in open_objects(schema)]
asked = json.load(sys.stdin)
failed += [f"there is no schema {name}" for name in asked if name not in SCHEMAS]
if "--all" in sys.argv[1:]:
    failed += [f"no answer was held against {name}" for name in SCHEMAS if not asked.get(name)]
    unheld = {name: unheld_forms(name, asked.get(name, [])) for name in SCHEMAS}
    failed += [f"{name}: no answer has the form {form}" for name, forms in unheld.items() for form in forms]
for name, answers in asked.items():
    for answer in answers:
        failed += [f"{name}: {error}" for error in wrong(SCHEMAS.get(name, {}), answer)[:20]]
        if not wrong(SCHEMAS.get(name, {}), {**answer, "a field that no schema knows": 1}):
            failed.append(f"{name}: a field more is not noticed")
print("\n".join(failed))
sys.exit(bool(failed))
