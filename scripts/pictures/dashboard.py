"""Draws the first panels of the dashboard "LLM inference" from its own queries, answered by a real Prometheus.

Usage: dashboard.py PROGRAMS PROMETHEUS WORK PICTURE
"""

import json
import pathlib
import subprocess
import sys
import time

import matplotlib.pyplot as plt
import numpy
from matplotlib.ticker import FuncFormatter

import servers

#: Rows of the picture, by the titles that the panels have in the dashboard.
ROWS = [
    ["Requests", "Active requests", "Tokens in flight", "Tokens a second"],
    ["Time to first token", "Time per output token", "Inter-token latency", "Request duration"],
    ["Time to first token, distribution", "Time per output token, distribution", "Inter-token latency, distribution"],
]
#: Clients at the same time, and for how many seconds: all equally long.
LOAD = [(1, 30), (4, 30), (2, 30)]
CHOSEN = {"$job": ".+", "$instance": ".+", "$model": ".+", "$__rate_interval": "10s"}
COLOURS = ["#3d71d9", "#e0752d", "#73a839", "#a352cc"]


def seconds(value, _=None):
    for unit, size in [("s", 1), ("ms", 1e-3), ("µs", 1e-6)]:
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return "0" if value == 0 else f"{value * 1e9:.3g} ns"


def answers(over, panel, start, end):
    """Each series of a panel: its label, its seconds and its values."""
    for target in panel["targets"]:
        expr = target["expr"]
        for name, value in CHOSEN.items():
            expr = expr.replace(name, value)
        for series in over(expr, start, end):
            label = target["legendFormat"]
            for name, value in series["metric"].items():
                label = label.replace("{{%s}}" % name, value)
            points = numpy.array([(float(at) - start, float(value)) for at, value in series["values"]])
            yield label, points[:, 0], points[:, 1]


def lines(axes, panel, series):
    for (label, at, values), colour in zip(series, COLOURS * 3):
        # A program has one address, which says nothing here.
        axes.plot(at, values, color=colour, linewidth=1.4, label="" if label.startswith("127.") else label)
        axes.fill_between(at, values, color=colour, alpha=0.08, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    labels = axes.get_legend_handles_labels()[1]
    if labels:
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2 if len(labels) > 3 else 3, fontsize=8, frameon=False
        )


def heat(axes, panel, series):
    """Counts of a cumulative histogram, bucket by bucket."""
    bounds = sorted((float(label), at, values) for label, at, values in series if label != "+Inf")
    counts = numpy.diff(numpy.array([values for _, _, values in bounds]), axis=0, prepend=0)
    used = numpy.flatnonzero(counts.sum(axis=1))
    low, high = max(used[0] - 1, 0), min(used[-1] + 2, len(bounds) - 1)
    edges = [bound for bound, _, _ in bounds]
    shown = numpy.where(counts > 0, counts, numpy.nan)
    extent = (bounds[0][1][0], bounds[0][1][-1], 0, high - low)
    axes.imshow(
        shown[low:high], aspect="auto", origin="lower", cmap="Oranges", vmin=0, extent=extent, interpolation="nearest"
    )
    ticks = range(0, high - low + 1, max(1, (high - low) // 6))
    axes.set_yticks(list(ticks), [seconds(edges[low + tick - 1]) if low + tick else "0" for tick in ticks])


def draw(panels, over, start, end, about, picture):
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 8.5})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#aaaaaa"})
    figure = plt.figure(figsize=(14, 8.6), dpi=100, facecolor="#f4f5f5")
    rows = figure.subfigures(len(ROWS) + 1, 1, height_ratios=[0.3, 1.08, 1, 0.9])
    head = rows[0]
    head.set_facecolor("#f4f5f5")
    head.text(0.012, 0.74, "LLM inference", fontsize=15, weight="bold", va="center")
    head.text(0.012, 0.28, about, fontsize=9, color="#555555", va="center", linespacing=1.4)
    for row, titles in zip(rows[1:], ROWS):
        row.set_facecolor("#f4f5f5")
        grid = row.subplots(1, len(titles))
        row.subplots_adjust(left=0.05, right=0.99, bottom=0.3 if row is rows[1] else 0.2, top=0.87, wspace=0.24)
        for axes, title in zip(grid, titles):
            panel = panels[title]
            series = list(answers(over, panel, start, end))
            if not series:
                raise SystemExit(f"pictures: the panel {title!r} stays empty")
            (heat if panel["type"] == "heatmap" else lines)(axes, panel, series)
            unit = panel["fieldConfig"]["defaults"].get("unit")
            axes.set_title(title + (", per second" if unit == "reqps" else ""), loc="left", fontsize=10, weight="bold")
            if unit == "s" and panel["type"] != "heatmap":
                axes.yaxis.set_major_formatter(FuncFormatter(seconds))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:.0f} s"))
            axes.set_facecolor("white")
            axes.grid(color="#e4e5e6", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.tick_params(length=0, colors="#555555")
    figure.savefig(picture)


def main():
    programs, prometheus, work, picture = map(pathlib.Path, sys.argv[1:])
    dashboard = json.loads((servers.ROOT / "grafana/dashboards/llm-inference.json").read_text())
    panels = {panel["title"]: panel for panel in dashboard["panels"] if panel["type"] != "row"}
    with servers.example_server(programs, "embedded") as (address, metrics):
        with servers.prometheus(prometheus / "prometheus", work, metrics) as over:
            start = time.time()
            for clients, lasts in LOAD:
                command = [programs / "load", "--server", address, "--clients", str(clients), "--seconds", str(lasts)]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            end = time.time()
            clients = ", then ".join(str(clients) for clients, _ in LOAD)
            about = (
                "Drawn by a script from the dashboard's own queries and a real Prometheus; not a screenshot of Grafana.\n"
                f"The example server with its tiny built-in model, one at a time: {clients} clients at once, {LOAD[0][1]} s each."
            )
            # The first rates need some scrapes.
            draw(panels, over, start + 5, end, about, picture)


main()
