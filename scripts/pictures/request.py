"""Draws one request as a real Jaeger has it: a tree of spans on a time line.

Usage: request.py PROGRAMS MODEL JAEGER PICTURE
"""

import pathlib
import sys
import time

import matplotlib.pyplot as plt

import servers

SERVICE = "candlescope-server"
#: Long enough for blocks of the prefill to be seen beside the whole request.
PROMPT = (
    "Once upon a time, in a small town by the sea, there lived an old man who made candles, and every evening he would"
)
REQUESTS = 6
COLOURS = {"prefill": "#3b6aa8", "decode": "#d8742a"}
#: Attributes of the request that the picture lists.
SHOWN = [
    "gen_ai.request.model",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.response.time_to_first_chunk",
    "candlescope.queue_time",
    "candlescope.flops",
    "candlescope.bytes",
    "candlescope.spans_omitted",
]


def trace(programs, model, jaeger):
    """The shortest of several requests: the first ones warm up, and other programs may have been in the way."""
    with servers.jaeger(jaeger) as (otlp, query), servers.example_server(programs, model, otlp) as (address, _):
        for _ in range(REQUESTS):
            servers.ask(f"{address}/v1/completions", {"prompt": PROMPT, "max_tokens": 12})
        search = f"{query}/api/traces?service={SERVICE}&limit={REQUESTS}"
        deadline, before = time.monotonic() + 60, None
        while time.monotonic() < deadline:
            time.sleep(2)
            found = servers.ask(search)["data"]
            counts = [len(trace["spans"]) for trace in found]
            # Spans arrive in several batches.
            if len(found) == REQUESTS and counts == before:
                return min(found, key=lambda trace: tree(trace["spans"])[0]["duration"])
            before = counts
    raise SystemExit("pictures: the requests did not reach Jaeger")


def tree(spans):
    """The root, and the children of each span in order of their start."""
    known = {span["spanID"] for span in spans}
    children, root = {}, None
    for span in sorted(spans, key=lambda span: span["startTime"]):
        parents = [r["spanID"] for r in span["references"] if r["refType"] == "CHILD_OF" and r["spanID"] in known]
        if parents:
            children.setdefault(parents[0], []).append(span)
        else:
            root = span
    return root, children


def rows(root, children):
    """What the picture shows: all steps, the children of the first one, and those of its first block."""
    yield 0, root, None
    for number, step in enumerate(children[root["spanID"]]):
        inside = children.get(step["spanID"], [])
        if number > 0:
            yield 1, step, f"+ {len(inside)} children, not shown" if inside else None
            continue
        yield 1, step, None
        blocks = [span for span in inside if span["operationName"] == "block"]
        for span in inside:
            if span in blocks[2:]:
                if span is blocks[2]:
                    whole = blocks[-1]["startTime"] + blocks[-1]["duration"] - span["startTime"]
                    name = f"block, {len(blocks) - 2} more"
                    yield 2, {**span, "operationName": name, "duration": whole}, "together"
                continue
            yield 2, span, None
            if span is blocks[0]:
                for part in children.get(span["spanID"], []):
                    parts = children.get(part["spanID"], [])
                    yield 3, part, f"+ {len(parts)} children, not shown" if parts else None


def lasting(microseconds):
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    return f"{microseconds / 1e3:.0f} ms" if microseconds >= 100_000 else f"{microseconds / 1e3:.3g} ms"


def draw(found, picture):
    root, children = tree(found["spans"])
    listed = list(rows(root, children))
    start, whole = root["startTime"], root["duration"]
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9})
    figure, axes = plt.subplots(figsize=(13, 1.7 + 0.245 * len(listed)), dpi=100)
    figure.subplots_adjust(
        left=0.235, right=0.985, top=1 - 1.0 / figure.get_figheight(), bottom=0.75 / figure.get_figheight()
    )
    phase = None
    for y, (depth, span, note) in enumerate(listed):
        name, began, took = span["operationName"], span["startTime"] - start, span["duration"]
        phase = name if depth == 1 else phase
        colour = COLOURS.get(phase, "#777777") if depth else "#5f6b7a"
        if y % 2:
            axes.axhspan(y - 0.5, y + 0.5, color="#f6f6f4", zorder=0)
        label = "    " * depth + (name if depth else name.split(" ")[0] + "  (the request)")
        axes.text(
            -0.305,
            y,
            label,
            transform=axes.get_yaxis_transform(),
            va="center",
            weight="bold" if depth < 2 else "normal",
        )
        axes.barh(
            y, max(took, whole / 900), left=began, height=0.62, color=colour, alpha=1 if depth < 2 else 0.75, zorder=2
        )
        text = lasting(took) + (f"   {note}" if note else "")
        inside = took > whole * 0.5
        at = (began + took / 2, "center", "white") if inside else (began + took + whole * 0.006, "left", "#333333")
        if not inside and began + took > whole * 0.82:
            at = (began - whole * 0.006, "right", "#333333")
        axes.text(at[0], y, text, va="center", ha=at[1], color=at[2], fontsize=8)
    axes.set(xlim=(0, whole * 1.005), ylim=(len(listed) - 0.5, -0.5))
    axes.set_yticks([])
    axes.xaxis.tick_top()
    axes.xaxis.set_major_formatter(lambda at, _: lasting(at) if at else "0")
    axes.tick_params(length=0, colors="#555555")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6, zorder=1)
    for spine in axes.spines.values():
        spine.set_visible(False)
    top = 1 - 0.27 / figure.get_figheight()
    figure.text(0.012, top, "One request in Jaeger", fontsize=14, weight="bold", va="center")
    figure.text(
        0.2,
        top,
        f"{len(found['spans'])} spans; drawn by a script from what Jaeger's API answers, not a screenshot of Jaeger",
        color="#555555",
        va="center",
    )
    tags = {tag["key"]: tag["value"] for tag in root["tags"]}
    said = [
        f"{key} = {tags[key]:,}" if isinstance(tags[key], int) else f"{key} = {tags[key]}"
        for key in SHOWN
        if key in tags
    ]
    half = (len(said) + 1) // 2
    for line, part in enumerate([said[:half], said[half:]]):
        figure.text(
            0.012,
            (0.48 - 0.24 * line) / figure.get_figheight(),
            "     ".join(part),
            fontsize=8.5,
            color="#333333",
            va="center",
        )
    figure.savefig(picture)


def main():
    programs, model, jaeger, picture = map(pathlib.Path, sys.argv[1:])
    draw(trace(programs, model, jaeger), picture)


main()
