"""Holds answers against the schemas of docs/schemas: {"NAME of a schema": [answer, …], …} on standard input. With --all,
each schema has to have an answer, and so has each form of a schema that has several.

Published schemas are open: fields are added within a version, and who validates must not fail then. Here they are closed:
an answer has no field that its schema does not list, and the same answer with a field more passes the published one alone."""

import json
import pathlib
import sys

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

FOLDER = pathlib.Path(__file__).parents[2] / "docs/schemas"
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
# What clients read most: each field of these says what it is.
DESCRIBED = ("overview", "analyze", "compare", "gate", "mcp")
NEW = {"a field that no schema knows": 1}


def lists_fields(part):
    # A field may be called `properties`: then its schema stands there, which lists none by names of types.
    return isinstance(part.get("properties"), dict) and "type" in part


def closed(part):
    """The same schema, in which every object whose fields are listed has no others."""
    if isinstance(part, list):
        return [closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    inner = {key: closed(one) for key, one in part.items()}
    # First, so that a field more is noticed before all others are looked at.
    return {"additionalProperties": False} | inner if lists_fields(part) else inner


def registry(schemas):
    return Registry().with_resources((f"{name}.json", Resource.from_contents(schema)) for name, schema in schemas.items())


OPEN, CLOSED = registry(SCHEMAS), registry({name: closed(schema) for name, schema in SCHEMAS.items()})


def reasons(error):
    """What is wrong; where a thing has none of several forms, by the form that it is nearest to."""
    forms = {}
    for inner in error.context or []:
        forms.setdefault(inner.schema_path[0], []).append(inner)
    # One of another type, such as null, is far.
    far = lambda form: any(inner.validator == "type" and not inner.relative_path for inner in form)
    nearest = min(forms.values(), key=lambda form: (far(form), len(form)), default=None)
    return [error] if nearest is None else [reason for inner in nearest for reason in reasons(inner)]


def wrong(place, answer, within=CLOSED):
    """What is wrong with an answer by the schema at `place`, such as `overview.json`."""
    errors = Draft202012Validator({"$ref": place}, registry=within).iter_errors(answer)
    return [f"{reason.json_path}: {reason.message[:200]}" for error in errors for reason in reasons(error)]


def unheld_forms(name, answers):
    """Forms of a schema that no answer has."""
    for at, form in enumerate(SCHEMAS[name].get("anyOf", [])):
        if all(wrong(f"{name}.json#/anyOf/{at}", answer) for answer in answers):
            yield form.get("title", at)


def places(part, place=""):
    """Each object of a schema, with where it is."""
    if isinstance(part, list):
        return [found for at, one in enumerate(part) for found in places(one, f"{place}/{at}")]
    if not isinstance(part, dict):
        return []
    return [(place or "/", part)] + [found for key, one in part.items() for found in places(one, f"{place}/{key}")]


failed = []
for name, schema in SCHEMAS.items():
    Draft202012Validator.check_schema(schema)
    for place, part in places(schema):
        if part.get("additionalProperties") is False or "unevaluatedProperties" in part:
            failed.append(f"{name}: {place} takes no other fields: published schemas are open")
        if name.split("-")[0] in DESCRIBED and lists_fields(part):
            silent = [key for key, one in part["properties"].items() if "description" not in one]
            failed += [f"{name}: {place} does not describe `{key}`" for key in silent]
asked = json.load(sys.stdin)
failed += [f"there is no schema {name}" for name in asked if name not in SCHEMAS]
if "--all" in sys.argv[1:]:
    failed += [f"no answer was held against {name}" for name in SCHEMAS if not asked.get(name)]
    unheld = {name: unheld_forms(name, asked.get(name, [])) for name in SCHEMAS}
    failed += [f"{name}: no answer has the form {form}" for name, forms in unheld.items() for form in forms]
for name, answer in [(name, answer) for name, answers in asked.items() if name in SCHEMAS for answer in answers]:
    place, more = f"{name}.json", answer | NEW
    failed += [f"{name}: {error}" for error in wrong(place, answer)[:20]]
    # What passes with a field more passes without it as well.
    if with_more := wrong(place, more, OPEN):
        as_it_is = wrong(place, answer, OPEN)
        failed += [f"{name}, as it is published: {error}" for error in as_it_is[:20]]
        failed += [f"{name}: with a field more the published schema fails: {error}" for error in with_more[:5] if not as_it_is]
    if Draft202012Validator({"$ref": place}, registry=CLOSED).is_valid(more):
        failed.append(f"{name}: a field more is not noticed")
print("\n".join(failed))
sys.exit(bool(failed))
