#!/usr/bin/env python3
"""The page of GPT-2's case study: what a recorded run without a cache promises, what `bench variants` measured, and an optimisation.

    scripts/case-studies/variants.py PAGE.md VARIANTS [HEADING=STUDY...] > NEW.md
"""
import json
import pathlib
import subprocess
import sys

from page import kept_of, percent, room_for_words, section


def analysed(run):
    return json.loads(subprocess.run(["candlescope", "analyze", str(run), "--json"], check=True, capture_output=True, text=True).stdout)


def of_decode(rows, phase):
    """The first of these rows that is about decoding, or None."""
    return next((row for row in rows if phase(row) == "decode"), None)


def promised_by(told, code):
    found = of_decode([one for one in told["findings"] if one["code"] == code], lambda one: one["place"]["phase"])
    return found and found["gain"]


def step_ns(told):
    return of_decode(told["runs"][0]["steps"], lambda one: one["phase"])["unobserved_ns"]


def bounds(gain):
    return f"{percent(gain['mid'])} ({percent(gain['low'])} to {percent(gain['high'])})" if gain else "–"


def main(page, study, studies):
    folder, kept = pathlib.Path(study), kept_of(page)
    runs = {run.name: run for run in (folder / "runs").iterdir() if run.is_dir()}
    named = lambda part: next((run for name, run in runs.items() if part in name), None)  # noqa: E731
    variants = {}
    for file in ("baseline_results.json", "quantization_results.json", "onnx_results.json"):
        if (folder / file).exists():
            for one in json.loads((folder / file).read_text())["variants"]:
                variants[one["variant"]] = one
    heading = "From no cache to another runtime"
    out = ["# GPT-2: without a cache, with it, in 8 bits, as ONNX", ""]
    out += [
        "Made by `scripts/case-studies/gpt2.sh`: GPT-2 at its size with random weights, 32 tokens of prompt and 32 new ones. A request's "
        "latency is that of `bench variants`, all variants in turns in each of its process starts, with the 95 % interval of the ratio.",
        "",
        f"## {heading}",
        "",
        "| variant | a request | × the one with cache in f32 | |",
        "|---|---|---|---|",
    ]
    for name, one in variants.items():
        if one["latency_ms"] is None:
            out.append(f"| `{name}` | – | – | absent: {one['absent']} |")
            continue
        speed = one.get("speedup_over_kv_cache") or {}
        ci = speed.get("ci95")
        ratio = "1" if name == "kv_cache" else f"{speed['ratio']:.2f}" + (f" ({ci[0]:.2f} to {ci[1]:.2f})" if ci else "")
        out.append(f"| `{name}` | {one['latency_ms']['median']:.0f} ms | {ratio} | |")
    without, with_ = named("no_cache"), named("kv_cache")
    if without and with_:
        without, with_ = analysed(without), analysed(with_)
        promised, obtained = promised_by(without, "recomputed"), 1 - step_ns(with_) / step_ns(without)
        out += [
            "",
            f"The recorded run without a cache has the finding `recomputed`, which promises {bounds(promised)} of a decoding step; the "
            f"recorded run with one takes {percent(obtained)} less.",
        ]
    out += room_for_words(heading, kept)
    for one in studies:
        out += section(*one.rsplit("=", 1), kept)
    print("\n".join(out).rstrip() + "\n", end="")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
