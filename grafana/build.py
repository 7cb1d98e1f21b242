#!/usr/bin/env python3
"""Writes the dashboards in dashboards/. Usage: grafana/build.py [--check]

Panels are lists of (title, unit, description, kind, queries), so that what differs between them is all there is to read.
With --check nothing is written; the exit status says whether the files are what this script makes.
"""

import json
import pathlib
import re
import sys
import urllib.parse

HERE = pathlib.Path(__file__).parent
RATE = "$__rate_interval"
# Every query uses both, so that several jobs and processes can be distinguished.
I = 'job=~"$job",instance=~"$instance"'
M = f'{I},gen_ai_request_model=~"$model"'
DATASOURCE = {"type": "prometheus", "uid": "${prometheus_datasource}"}


def explore(to, at_least):
    """A link to Grafana's Explore with a search in the Jaeger data source. Braces of variables must stay as they are."""
    query = {
        "refId": "A", "datasource": {"type": "jaeger", "uid": "${jaeger_datasource}"}, "queryType": "search",
        "service": "${service}", "limit": 50, **({"minDuration": at_least} if at_least else {}),
    }
    panes = {"traces": {"datasource": "${jaeger_datasource}", "queries": [query], "range": {"from": "${__from}", "to": to}}}
    text = urllib.parse.quote(json.dumps(panes, separators=(",", ":")), safe="")
    text = re.sub(r"%24%7B(\w+(?:\.\w+)*)%7D", r"${\1}", text)
    return f"/explore?schemaVersion=1&orgId=1&panes={text}"


def jaeger(to, at_least):
    """A link to Jaeger's own search, which counts in microseconds."""
    search = f"${{jaeger}}/search?service=${{service}}&lookback=custom&start=${{__from}}000&end={to}000&limit=50"
    return search + (f"&minDuration={at_least}" if at_least else "")


def to_traces(what, to, at_least=""):
    """The same search in both. A link can contain one point in time, so the search ends there and shows the latest traces
    before it."""
    return [
        {"title": f"{what} in Explore", "url": explore(to, at_least), "targetBlank": True},
        {"title": f"{what} in Jaeger", "url": jaeger(to, at_least), "targetBlank": True},
    ]


POINT = "${__value.time}"
TRACES = to_traces("Latest traces up to this point", POINT)
SLOW = to_traces("Latest traces up to this point that took this long", POINT, "${__value.numeric}s")
# Heat maps have no points to click on, only the time that is shown.
SHOWN = to_traces("Traces of the time shown", "${__to}")


def quantiles(metric, labels, by=""):
    """p50, p90 and p99 of a histogram."""
    legend = " ".join(["p%d", *(f"{{{{{label}}}}}" for label in by.split(", ") if label)])
    group = f"le, {by}" if by else "le"
    return [
        (f"histogram_quantile({q / 100}, sum by ({group}) (rate({metric}_bucket{{{labels}}}[{RATE}])))", legend % q)
        for q in (50, 90, 99)
    ]


def heat(metric, labels):
    return [(f"sum by (le) (increase({metric}_bucket{{{labels}}}[{RATE}]))", "{{le}}")]


def rate(metric, labels, by):
    return f"sum by ({by}) (rate({metric}{{{labels}}}[{RATE}]))"


def total_on_gpu(time, measured, every, by, over_time=None):
    """GPU time of all intervals, from the measured ones: their mean × number of all intervals, for each source by itself (`candlescope_core::estimate`).

    `time` and `measured` are sum and number of the measured ones, `every` the number of all, each with its matchers. Processes measure
    different shares of theirs, so the formula is applied to each of them."""
    step = over_time or f"rate(%s[{RATE}])"
    each = f"instance, {by}"
    mean = over(f"sum by ({each}, source) ({step % time})", f"sum by ({each}, source) ({step % measured})")
    return f"sum by ({by}, source) ({mean} * on ({each}) group_left () sum by ({each}) ({step % every}))"


def over(numerator, denominator):
    """A quotient without a value where there is nothing to divide by: 0 / 0 would be shown as NaN."""
    return f"{numerator} / ({denominator} > 0)"


def variable(name, label, query, every=True):
    return {
        "name": name, "label": label, "type": "query", "datasource": DATASOURCE,
        "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1, "multi": every, "includeAll": every,
        **({"allValue": ".+", "current": {"text": "All", "value": "$__all"}} if every else {}),
    }


def data_source(kind):
    return {"name": f"{kind}_datasource", "label": f"{kind.title()} data source", "type": "datasource", "query": kind,
            "refresh": 1}


def textbox(name, label, value):
    return {"name": name, "label": label, "type": "textbox", "query": value, "current": {"text": value, "value": value}}


MODEL = variable(
    "model", "Model", f"label_values(gen_ai_server_request_duration_seconds_count{{{I}}}, gen_ai_request_model)")
GPU = variable("gpu", "GPU", f"label_values(hw_gpu_memory_limit_bytes{{{I}}}, hw_id)")
PATH = variable("path", "Path", f"label_values(candlescope_span_duration_seconds_count{{{I}}}, path)", every=False)
TO_JAEGER = [
    data_source("jaeger"),
    textbox("jaeger", "Jaeger", "http://localhost:16686"),
    textbox("service", "Service in Jaeger", "candlescope"),
]


# The text of panels without data: a program without a GPU, or without recorded kernels, is not a mistake.
ABSENT = [
    ("candlescope_fleet_level", "no level changed"),
    ("candlescope_fleet", "no run has it"),
    ("candlescope_mfu", "no steps with FLOPs, or no peak is known for the device"),
    ("candlescope_mbu", "no steps with bytes, or no peak is known for the device"),
    ("candlescope_kernel", "no kernels are recorded"),
    ('clock="gpu"', "no GPU time is measured"),
    ("candlescope_gpu_busy", "no kernels are recorded"),
    ("candlescope_step_tokens", "no step tells its tokens"),
    ("hw_id", "no GPU is sampled"),
]


# Thresholds from which a figure needs attention; red is where an alert fires.
LIMITS = {"Overhead": [(0.02, "orange"), (0.05, "red")], "Intervals lost": [(1e-9, "orange"), (0.001, "red")]}


def panel(number, place, title, unit, description, kind, queries, links=(), axis=None):
    table = kind == "table"
    # A query over the whole time shown has one value, not one for each point in time.
    instant = any("$__range" in expr for expr, *_ in queries)
    targets = [
        {
            "refId": chr(ord("A") + n), "expr": expr, "legendFormat": legend, "datasource": DATASOURCE,
            "format": {"heatmap": "heatmap", "table": "table"}.get(kind, "time_series"),
            "instant": instant, "range": not instant,
        }
        for n, (expr, legend, *_) in enumerate(queries)
    ]
    absent = next((text for part, text in ABSENT if part in queries[0][0] and not table), None)
    defaults = {"unit": unit, **({"noValue": absent} if absent else {})}
    made = {
        "id": number, "type": kind, "title": title, "description": description, "datasource": DATASOURCE,
        "gridPos": place, "targets": targets, "fieldConfig": {"defaults": defaults, "overrides": []}, "options": {},
    }
    if kind == "heatmap":
        made["links"] = [
            {"type": "link", "icon": "external link", "tags": [], "tooltip": "", "asDropdown": False, "includeVars": False,
             "keepTime": False, **link}
            for link in links
        ]
    elif links:
        defaults["links"] = list(links)
    if kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 10, "showPoints": "never", "spanNulls": False,
                              **({"axisLabel": axis} if axis else {})}
        # From zero, because a share or a duration that is drawn from its own minimum exaggerates small changes.
        defaults["min"] = 0
        made["options"] = {
            "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["mean", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    elif kind == "state-timeline":
        defaults["custom"] = {"fillOpacity": 70, "lineWidth": 0}
        defaults["mappings"] = [
            {"type": "value", "options": {"0": {"text": "no", "color": "transparent", "index": 0},
                                          "1": {"text": "yes", "color": "orange", "index": 1}}},
        ]
        made["options"] = {"showValue": "never", "mergeValues": True, "legend": {"showLegend": False},
                           "tooltip": {"mode": "single"}}
    elif kind == "heatmap":
        made["options"] = {
            "calculate": False, "yAxis": {"unit": unit}, "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
            "cellGap": 1, "tooltip": {"mode": "single", "yHistogram": True},
        }
    elif kind == "stat":
        # Without explicit steps, Grafana paints everything above 80 red.
        steps = LIMITS.get(title, [])
        defaults["color"] = {"mode": "thresholds"}
        defaults["thresholds"] = {
            "mode": "absolute",
            "steps": [{"color": "green" if steps else "text", "value": None}, *({"color": c, "value": v} for v, c in steps)],
        }
        made["options"] = {
            "reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value",
            "graphMode": "none" if instant or unit == "none" else "area",
            # A value that is in the legend needs no other display.
            "textMode": "name" if unit == "none" else "auto",
        }
    elif table:
        columns = {f"Value #{target['refId']}": target["legendFormat"] for target in targets}
        made["transformations"] = [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": columns}},
        ]
        made["options"] = {"showHeader": True, "sortBy": [{"displayName": queries[0][1], "desc": True}]}
        made["fieldConfig"]["overrides"] = [
            {"matcher": {"id": "byName", "options": legend},
             # Paths are long: they get the width that the figures leave.
             "properties": [{"id": "custom.width", "value": 100}, *({"id": "unit", "value": u} for u in own)]}
            for _, legend, *own in queries
        ]
    return made


def annotation(name, colour, expr, title, text):
    """Marks at the times at which a query has a value. Grafana 12 reads the query in `target`, Grafana 11 the one beside it."""
    step = "30s"
    return {
        "name": name, "datasource": DATASOURCE, "enable": True, "hide": False, "iconColor": colour,
        "titleFormat": title, "textFormat": text, "expr": expr, "step": step,
        "target": {"refId": "Anno", "expr": expr, "interval": step, "datasource": DATASOURCE},
    }


def dashboard(uid, title, description, variables, rows, of="candlescope_run_info", since="now-30m", refresh="10s", marks=()):
    panels, y, number = [], 0, 1
    for heading, width, height, contents in rows:
        panels.append({"id": number, "type": "row", "title": heading, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        number, y, x = number + 1, y + 1, 0
        for content in contents:
            if x + width > 24:
                x, y = 0, y + height
            panels.append(panel(number, {"x": x, "y": y, "w": width, "h": height}, *content))
            number, x = number + 1, x + width
        y += height
    return {
        "uid": uid, "title": title, "description": description, "tags": ["candlescope"], "schemaVersion": 41, "version": 1,
        "editable": False, "graphTooltip": 1, "refresh": refresh, "timezone": "browser",
        "time": {"from": since, "to": "now"},
        "templating": {"list": [
            data_source("prometheus"), variable("job", "Job", f"label_values({of}, job)"),
            variable("instance", "Instance", f'label_values({of}{{job=~"$job"}}, instance)'), *variables]},
        "links": [{"type": "dashboards", "tags": ["candlescope"], "asDropdown": True, "title": "candlescope", "tooltip": "",
                   "icon": "external link", "targetBlank": False, "includeVars": True, "keepTime": True}],
        "annotations": {"list": list(marks)},
        "panels": panels,
    }


TTFT = "gen_ai_server_time_to_first_token_seconds"
TPOT = "gen_ai_server_time_per_output_token_seconds"
E2E = "gen_ai_server_request_duration_seconds"
QUEUE = "candlescope_request_queue_time_seconds"
ITL = "candlescope_inter_token_latency_seconds"
SPAN = "candlescope_span_duration_seconds"
PHASES_ON_GPU = total_on_gpu(
    f'candlescope_phase_seconds_total{{{I},clock="gpu"}}', f"candlescope_gpu_steps_total{{{I}}}",
    f"candlescope_steps_total{{{I}}}", "phase")

LLM = dashboard(
    "candlescope-llm", "LLM inference", "Requests, latency, throughput and utilisation of LLM inference written with candle.",
    [MODEL, *TO_JAEGER],
    [
        ("Requests", 6, 7, [
            ("Requests", "reqps", "Requests that ended, a second, by model.", "timeseries",
             [(rate(f"{E2E}_count", M, "gen_ai_request_model"), "{{gen_ai_request_model}}")], TRACES),
            ("Requests by outcome", "reqps",
             "Requests that ended, a second, by how: done, cancelled, failed, or unstated where the program does not say.", "timeseries",
             [(rate("candlescope_requests_total", M, "outcome"), "{{outcome}}")], TRACES),
            ("Active requests", "short", "Requests that had a step and have not ended.", "timeseries",
             [(f"sum by (instance) (candlescope_requests_active{{{I}}})", "{{instance}}")], TRACES, "requests"),
            ("Tokens in flight", "short", "Context of all active requests together, in tokens: what the KV cache holds.", "timeseries",
             [(f"sum by (instance) (candlescope_tokens_in_flight{{{I}}})", "{{instance}}")], (), "tokens"),
            ("Tokens a second", "short",
             "Tokens processed a second as recorded steps end: prefill counts the prompt, decode the output. Those of ended requests come in "
             "one piece when a request ends, and are all of them, whatever a schedule says of steps.", "timeseries",
             [(f'sum by (phase) (rate(candlescope_step_tokens_total{{{I},phase!="none"}}[{RATE}]))', "{{phase}}"),
              (rate("candlescope_tokens_total", I, "type"), "{{type}} of ended requests")], (), "tokens/s"),
            ("Tokens a second while steps run", "short",
             "Tokens of a phase's steps over the union of their times, all threads together: how fast the device works while it has work.",
             "timeseries", [(f"sum by (phase) (candlescope_tokens_per_second{{{I}}})", "{{phase}}")], (), "tokens/s"),
            ("Steps at once", "short",
             "Mean number of steps open at once while any is, by phase and of all phases together: how many threads share the device.",
             "timeseries", [(f"avg by (phase) (candlescope_step_concurrency{{{I}}})", "{{phase}}")], (), "steps"),
            ("Steps by outcome", "ops",
             "Steps a second by what became of them: recorded, captured (only because a window was asked for), scheduled_out, left_plain (to measure the overhead), perturbed (part of an experiment), paused, lost. "
             "Figures of steps are of the first two.", "timeseries",
             [(rate("candlescope_steps_begun_total", I, "outcome"), "{{outcome}}")]),
        ]),
        ("Latency", 6, 9, [
            ("Time to first token", "s", "From a request's start to its first output token on the host.", "timeseries",
             quantiles(TTFT, M), SLOW),
            ("Queue time", "s", "From a request's start to its first step: what it waits for others. It is part of the time to first token.",
             "timeseries", quantiles(QUEUE, M), SLOW),
            ("Time per output token", "s", "Mean of each request's tokens after the first.", "timeseries", quantiles(TPOT, M), TRACES),
            ("Inter-token latency", "s", "Gap between consecutive tokens of a request: its tail is what a reader notices.", "timeseries",
             quantiles(ITL, I), TRACES),
            ("Request duration", "s", "From a request's start to its end.", "timeseries", quantiles(E2E, M), SLOW),
        ]),
        ("Distribution", 8, 8, [
            ("Time to first token, distribution", "s", "Requests by time to first token.", "heatmap", heat(TTFT, M), SHOWN),
            ("Time per output token, distribution", "s", "Requests by mean time per output token.", "heatmap", heat(TPOT, M), SHOWN),
            ("Inter-token latency, distribution", "s", "Tokens by the gap to the token before.", "heatmap", heat(ITL, I), SHOWN),
        ]),
        ("Phases and utilisation", 6, 8, [
            ("Time in phases", "percentunit",
             "Share of time that went into recorded steps of each phase, on the host and on the GPU, where it was measured (mean of the measured steps "
             "× all steps, by source); threads are added, so more than 100 % is possible.", "timeseries",
             [(rate("candlescope_phase_seconds_total", f'{I},clock="host"', "phase, clock"), "{{phase}} ({{clock}})"),
              (PHASES_ON_GPU, "{{phase}} (GPU, {{source}})")]),
            ("Step duration", "s", "Mean duration of a step on the host, by phase.", "timeseries",
             [(over(f'sum by (phase) (rate(candlescope_phase_seconds_total{{{I},clock="host"}}[{RATE}]))',
                    rate("candlescope_steps_total", I, "phase")), "{{phase}}")]),
            ("Steps by how they ran", "ops",
             "Steps a second by how they ran, where the program says it: replay (of a CUDA graph), or why call by call: not_asked, warm_up "
             "(the first of a size), capture_failed, stream, quantized, no_device, model.", "timeseries",
             [(rate("candlescope_step_runs_total", I, "phase, ran"), "{{phase}} ({{ran}})")]),
            ("MFU", "percentunit",
             "FLOPs of all threads over the union of their steps' times and peak FLOP/s, by which prefill is judged, mean of the processes; "
             "above 100 % is a measurement error, or several devices and no recorded kernels to tell them apart.",
             "timeseries",
             [(f"avg by (phase, peak) (candlescope_mfu_ratio{{{I}}})", "{{phase}} ({{peak}} peak)")]),
            ("MBU", "percentunit",
             "Bytes moved by all threads over the union of their steps' times and peak bandwidth, by which decode is judged, mean of the "
             "processes; above 100 % is a measurement error, or several devices and no recorded kernels to tell them apart.", "timeseries", [(f"avg by (phase, peak) (candlescope_mbu_ratio{{{I}}})", "{{phase}} ({{peak}} peak)")]),
            ("Achieved FLOP/s", "flops", "Analytic FLOPs of recorded steps over the wall time between scrapes.", "timeseries",
             [(rate("candlescope_flops_total", I, "phase"), "{{phase}}")]),
            ("Achieved bandwidth", "Bps", "Analytic bytes moved by recorded steps over the wall time between scrapes.", "timeseries",
             [(rate("candlescope_moved_bytes_total", I, "phase"), "{{phase}}")]),
        ]),
    ],
)

G = f'{I},hw_id=~"$gpu"'
ID = "{{hw_id}}"
GPUS = dashboard(
    "candlescope-gpu", "GPU", "Power, energy, memory, clocks and use of the GPUs that inference runs on.",
    [GPU],
    [
        ("Power and energy", 6, 8, [
            ("Power", "watt", "Power drawn by the board, and the limit that is enforced.", "timeseries",
             [(f"max by (hw_id) (hw_power_watts{{{G}}})", ID), (f"max by (hw_id) (hw_power_limit_watts{{{G}}})", "limit " + ID)]),
            ("Energy a token", "joule",
             "All energy of a process' GPUs over the output tokens of the requests that ended in the same time, whatever a schedule says of "
             "steps: gross, so prefill, idling and other programs are in it.", "timeseries",
             [(over(f"sum by (instance) (rate(hw_energy_joules_total{{{G}}}[{RATE}]))",
                    f'sum by (instance) (rate(candlescope_tokens_total{{{I},type="output"}}[{RATE}]))'), "{{instance}}")],
             (), "joules a token"),
            ("Energy", "joule", "Energy used over the time shown, by the GPU's own counter.", "stat",
             [(f"max by (hw_id) (increase(hw_energy_joules_total{{{G}}}[$__range]))", ID)]),
            ("What power is used for", "watt",
             "Mean power of a process' GPUs by what it was used for: steps of requests, other steps, idling, and time of which it is not "
             "known which steps ran. Together it is what the GPUs' own counters count, of whatever process.", "timeseries",
             [(f"sum by (instance, of) (rate(candlescope_energy_joules_total{{{G}}}[{RATE}]))", "{{instance}} {{of}}")]),
        ]),
        ("Use", 8, 8, [
            ("Busy share", "percentunit", "Share of the driver's sampling period in which any kernel ran, of any program: time, not occupancy.",
             "timeseries", [(f"max by (hw_id) (hw_gpu_utilization_ratio{{{G}}})", ID)]),
            ("Memory busy share", "percentunit", "Share of the same period in which device memory was accessed: time, not bandwidth.",
             "timeseries", [(f"max by (hw_id) (candlescope_gpu_memory_busy_ratio{{{G}}})", ID)]),
            ("Memory", "bytes", "Device memory in use by anyone, and all there is.", "timeseries",
             [(f"max by (hw_id) (hw_gpu_memory_usage_bytes{{{G}}})", ID), (f"max by (hw_id) (hw_gpu_memory_limit_bytes{{{G}}})", "all of " + ID)]),
        ]),
        ("Clocks and heat", 8, 9, [
            ("Clocks", "hertz", "Clocks by domain; the SM clock is what compute scales with.", "timeseries",
             [(f"max by (hw_id, domain) (candlescope_gpu_clock_hertz{{{G}}})", "{{domain}} " + ID)]),
            ("Throttling", "bool_yes_no", "Reasons that hold clocks down, while they do; gpu_idle is no cause for concern.", "state-timeline",
             [(f"max by (hw_id, reason) (candlescope_gpu_throttled{{{G}}})", ID + " {{reason}}")]),
            ("Temperature", "celsius", "Temperature of the die.", "timeseries", [(f"max by (hw_id) (hw_temperature_celsius{{{G}}})", ID)]),
        ]),
        ("Link and steps", 8, 8, [
            ("PCIe traffic", "Bps", "Traffic over PCIe, sampled over 20 ms by the driver.", "timeseries",
             [(f"max by (hw_id, direction) (candlescope_gpu_pcie_throughput_bytes_per_second{{{G}}})", "{{direction}} " + ID)]),
            ("Busy share of steps", "percentunit",
             "Recorded kernels, copies and memsets, merged, over the union of the recorded steps' times: windows of steps only.", "timeseries",
             [(f"max by (instance, hw_id) (candlescope_gpu_busy_ratio{{{I}}})", ID + " {{instance}}")]),
            ("GPU time of steps", "percentunit",
             "Time of steps on the GPU over time, mean of the measured steps × all steps: event is elapsed on the stream, queue gaps included, "
             "cupti the sum of kernels; threads are added.", "timeseries", [(PHASES_ON_GPU, "{{phase}} ({{source}})")]),
        ]),
    ],
)


def by_path(clock):
    return f'{I},clock="{clock}"'


def gpu_time_of_paths(over_time=None):
    return total_on_gpu(f"{SPAN}_sum{{{by_path('gpu')}}}", f"{SPAN}_count{{{by_path('gpu')}}}", f"{SPAN}_count{{{by_path('host')}}}", "path", over_time)


def of_paths():
    time, count = (f"sum by (path) (increase({SPAN}_{what}{{{by_path('host')}}}[$__range]))" for what in ("sum", "count"))
    return [(time, "time"), (count, "intervals", "short"), (over(time, count), "mean")]


def of_paths_on_gpu():
    time, measured = (f"sum by (path, source) (increase({SPAN}_{what}{{{by_path('gpu')}}}[$__range]))" for what in ("sum", "count"))
    return [(gpu_time_of_paths("increase(%s[$__range])"), "time"), (measured, "measured", "short"), (over(time, measured), "mean")]


LAYERS = dashboard(
    "candlescope-layers", "Layers", "Where time goes: intervals by their path, on the host and on the GPU.",
    [PATH, *TO_JAEGER],
    [
        ("Where time goes", 12, 10, [
            ("Host time by path", "percentunit",
             "Share of time inside each path on the host, children included: a parent is at least the sum of its children.", "timeseries",
             [(f'topk(15, {rate(SPAN + "_sum", by_path("host"), "path")})', "{{path}}")], TRACES),
            ("GPU time by path", "percentunit",
             "Share of time inside each path on the GPU, children included: mean of the measured intervals × all intervals, by source. event is "
             "elapsed on the stream, cupti the sum of kernels; they are never added.", "timeseries",
             [(f"topk(15, {gpu_time_of_paths()})", "{{path}} ({{source}})")], TRACES),
            ("Paths, host", "s", "Time, intervals and mean duration of every path over the time shown, on the host.", "table",
             of_paths()),
            ("Paths, GPU", "s",
             "Of every path and source over the time shown: time on the GPU (mean × all intervals), measured intervals and their mean duration.",
             "table", of_paths_on_gpu()),
        ]),
        ("One path", 8, 9, [
            ("Duration of $path", "s", "Quantiles of the chosen path's duration, on both clocks.", "timeseries",
             quantiles(SPAN, f'{I},path="$path"', "clock, source"), TRACES),
            ("Distribution of $path on the host", "s", "Intervals of the chosen path by duration on the host.", "heatmap",
             heat(SPAN, f'{by_path("host")},path="$path"'), SHOWN),
            ("Intervals of $path", "ops", "Intervals of the chosen path a second.", "timeseries",
             [(rate(SPAN + "_count", f'{by_path("host")},path="$path"', "path"), "{{path}}")]),
        ]),
        ("Kernels", 12, 8, [
            ("Device time in kernels and copies", "percentunit", "Time of recorded kernels, copies and memsets: windows of steps only.", "timeseries",
             [(rate("candlescope_kernel_seconds_total", I, "kind"), "{{kind}}")]),
            ("Kernels and copies", "ops", "Kernels, copies and memsets recorded a second: windows of steps only.", "timeseries",
             [(rate("candlescope_kernels_total", I, "kind"), "{{kind}}")]),
        ]),
    ],
)

HEALTH = dashboard(
    "candlescope-health", "Profiler health", "Whether the figures can be trusted, and what taking them costs.",
    [],
    [
        ("Now", 6, 5, [
            ("Overhead", "percentunit", "Time taken from the application's threads over time in steps, since the start (derived).", "stat",
             [(f"max by (instance) (candlescope_overhead_ratio{{{I}}})", "{{instance}}")]),
            ("Intervals lost", "percentunit", "Share of intervals lost before they became records, over the time shown.", "stat",
             [("1 - " + over(f'sum by (instance) (increase(candlescope_intervals_total{{{I},outcome="recorded"}}[$__range]))',
                             f"sum by (instance) (increase(candlescope_intervals_total{{{I}}}[$__range]))"), "{{instance}}")]),
            ("Paths with series", "short", "Paths that have series of their own; the limit is 500 unless told otherwise.", "stat",
             [(f"sum by (instance) (candlescope_paths{{{I}}})", "{{instance}}")]),
            ("Run", "none", "The run that each process records, and of which model.", "stat",
             [(f"sum by (run_id, model) (candlescope_run_info{{{I}}})", "{{run_id}} {{model}}")]),
        ]),
        ("Loss", 8, 10, [
            ("Intervals", "ops", "Intervals a second by what became of them; anything but recorded is loss.", "timeseries",
             [(rate("candlescope_intervals_total", I, "outcome"), "{{outcome}}")]),
            ("Records", "ops", "Records a second by exporter and outcome; anything but exported was dropped, and this is why. disk_budget removes what had been exported.", "timeseries",
             [(rate("candlescope_records_total", I, "exporter, outcome"), "{{exporter}} {{outcome}}")]),
            ("Requests and samples lost", "ops", "Requests and samples a second that never became records.", "timeseries",
             [(rate("candlescope_lost_total", I, "kind"), "{{kind}}")]),
        ]),
        ("Queue and cost", 8, 8, [
            ("Queue", "percentunit", "Records that wait for an exporter, as a share of those that its queue holds: at 100 % it drops.", "timeseries",
             [(f"max by (exporter) (candlescope_records_pending{{{I}}} / candlescope_records_pending_limit{{{I}}})", "{{exporter}}")]),
            ("Overhead over time", "percentunit", "Time taken from the application's threads over time in steps (derived).", "timeseries",
             [(f"max by (instance) (candlescope_overhead_ratio{{{I}}})", "{{instance}}")]),
            ("Intervals without series of their own", "ops",
             "Intervals a second that share the path (overflow), because there are more paths than allowed.", "timeseries",
             [(rate("candlescope_paths_overflow_total", I, "instance"), "{{instance}}")]),
        ]),
        ("Process", 6, 8, [
            ("Resident memory", "bytes", "Resident memory of the process, and the most it has had.", "timeseries",
             [(f"max by (instance) (process_resident_memory_bytes{{{I}}})", "{{instance}}"),
              (f"max by (instance) (process_peak_resident_memory_bytes{{{I}}})", "peak {{instance}}")]),
            ("CPU", "percentunit", "CPU time over wall time: 100 % is one busy core.", "timeseries",
             [(f"sum by (instance) (rate(process_cpu_seconds_total{{{I}}}[{RATE}]))", "{{instance}}")]),
            ("Context switches", "ops", "Context switches a second; involuntary ones mean that others wanted the core.", "timeseries",
             [(rate("process_context_switches_voluntary_total", I, "instance"), "voluntary {{instance}}"),
              (rate("process_context_switches_involuntary_total", I, "instance"), "involuntary {{instance}}")]),
            ("Scrape duration", "s", "Time that Prometheus took to fetch the metrics.", "timeseries",
             [(f'max by (instance) (scrape_duration_seconds{{{I}}})', "{{instance}}")]),
        ]),
    ],
)

# The time shown, and as much time right before it.
AFTER, BEFORE = "[$__range]", "[$__range] offset $__range"
ROOT = '"root", "$1", "path", "([^/]+).*"'


def both(of):
    """A figure of the time shown, and of the time before."""
    return [(of(AFTER), "after"), (of(BEFORE), "before")]


def increases(metric, labels, by, when):
    return f"sum by ({by}) (increase({metric}{{{labels}}}{when}))"


def mean(metric, labels, by):
    """The mean of a histogram, by when."""
    return lambda when: over(increases(f"{metric}_sum", labels, by, when), increases(f"{metric}_count", labels, by, when))


def quantile(metric, labels, q):
    return lambda when: f"histogram_quantile({q}, {increases(f'{metric}_bucket', labels, 'le', when)})"


def named(figures):
    """Several figures as one query, by when, told apart by a label."""
    return lambda when: " or ".join(f'label_replace({of(when)}, "figure", "{name}", "", "")' for name, of in figures)


def change(of):
    """By how much a figure changed, as a share of what it was."""
    return f"({of(AFTER)}) / (({of(BEFORE)}) > 0) - 1"


LATENCIES = named([
    ("time to first token, mean", mean(TTFT, M, "")),
    ("time to first token, p90", quantile(TTFT, M, 0.9)),
    ("queue time, mean", mean(QUEUE, M, "")),
    ("time per output token, mean", mean(TPOT, M, "")),
    ("inter-token latency, mean", mean(ITL, I, "")),
    ("inter-token latency, p99", quantile(ITL, I, 0.99)),
])
TRAFFIC = named([
    ("requests", lambda when: increases(f"{E2E}_count", M, "", when)),
    ("prompt tokens a request", lambda when: over(
        increases("candlescope_tokens_total", f'{I},type="input"', "", when), increases(f"{E2E}_count", I, "", when))),
    ("output tokens a request", lambda when: over(
        increases("candlescope_tokens_total", f'{I},type="output"', "", when), increases(f"{E2E}_count", I, "", when))),
])


def of_run(metric, labels):
    """A rate by run: each start of a program is a run of its own."""
    return (f"sum by (run_id) (rate({metric}{{{labels}}}[{RATE}]) * on (job, instance) group_left (run_id) "
            f"candlescope_run_info{{{I}}})")


def by_run(title, unit, description, numerator, denominator, axis=None):
    return (title, unit, description + " By run: each start of a program is one.", "timeseries",
            [(over(of_run(*numerator), of_run(*denominator)), "{{run_id}}")], (), axis)


def inside(clock, when):
    """Time inside each path, with its root, the interval of a step."""
    if clock == "host":
        time = increases(f"{SPAN}_sum", by_path("host"), "path", when)
    else:
        time = gpu_time_of_paths(f"increase(%s{when})")
    return f"label_replace({time}, {ROOT})"


def share(clock):
    """Each path's share of its steps, by when."""
    by = "root" if clock == "host" else "root, source"
    keep = "path" if clock == "host" else "path, source"
    whole = lambda when: f'max by ({by}) ({inside(clock, when)})'
    return lambda when: f"sum by ({keep}) ({inside(clock, when)} / on ({by}) group_left () ({whole(when)} > 0))"


def in_a_step(clock):
    """Time inside each path in one of its steps, by when."""
    keep = "path" if clock == "host" else "path, source"
    roots = by_path("host") + ',path=~"[^/]+"'
    steps = lambda when: f"label_replace({increases(f'{SPAN}_count', roots, 'path', when)}, {ROOT})"
    return lambda when: f"sum by ({keep}) ({inside(clock, when)} / on (root) group_left () ({steps(when)} > 0))"


def layers_then_and_now(clock):
    shares, times = share(clock), in_a_step(clock)
    return [(f"{shares(AFTER)} - {shares(BEFORE)}", "change"), (shares(AFTER), "share"), (shares(BEFORE), "before"),
            (times(AFTER), "in a step", "s"), (times(BEFORE), "was", "s")]


def most(metric, labels, by):
    return lambda when: f"max by ({by}) (max_over_time({metric}{{{labels}}}{when}))"


DEPLOY = dashboard(
    "candlescope-deploy", "What changed since the deploy",
    "Figures of the time shown beside those of as much time right before it. Choose the time from a start, which is marked, to now.",
    [MODEL],
    [
        ("Runs", 24, 6, [
            ("Runs", "bool_yes_no",
             "Which run each program records, and with which version of candlescope: a program that starts anew, as with each deployment, "
             "begins a new one.",
             "state-timeline", [(f"sum by (instance, run_id, version) (candlescope_run_info{{{I}}})", "{{instance}} {{run_id}} ({{version}})")]),
        ]),
        ("Before and after", 12, 9, [
            ("Latency before and after", "s", "Of the time shown, and of as much time right before it.", "table",
             [(change(LATENCIES), "change", "percentunit"), *both(LATENCIES)]),
            ("Traffic before and after", "short",
             "What the figures are of: with longer prompts, more tokens or more requests than before, a change of latency says little of the program.",
             "table", [(change(TRAFFIC), "change", "percentunit"), *both(TRAFFIC)]),
        ]),
        ("Throughput and energy before and after", 8, 7, [
            ("Tokens a second while steps run, before and after", "short", "Mean by phase, over the union of the steps' times.", "stat",
             [(f"avg by (phase) (avg_over_time(candlescope_tokens_per_second{{{I}}}{when}))", "{{phase}} " + name)
              for when, name in ((AFTER, "after"), (BEFORE, "before"))]),
            ("Energy a token, before and after", "joule", "All energy of the GPUs over the output tokens of ended requests: gross, idling is in it. A GPU that several processes sample counts once.", "stat",
             both(lambda when: over(f"sum(max by (hw_id) (increase(hw_energy_joules_total{{{I}}}{when})))",
                                    increases("candlescope_tokens_total", f'{I},type="output"', "", when)))),
            ("Step duration, before and after", "s", "Mean duration of a step on the host, by phase.", "stat",
             [(over(increases("candlescope_phase_seconds_total", f'{I},clock="host"', "phase", when),
                    increases("candlescope_steps_total", I, "phase", when)), "{{phase}} " + name)
              for when, name in ((AFTER, "after"), (BEFORE, "before"))]),
        ]),
        ("Over time", 6, 8, [
            by_run("Time to first token", "s", "Mean.", (f"{TTFT}_sum", M), (f"{TTFT}_count", M)),
            by_run("Inter-token latency", "s", "Mean.", (f"{ITL}_sum", I), (f"{ITL}_count", I)),
            ("Tokens a second while steps run", "short", "Of decode, over the union of its steps' times. By run: each start of a program is one.",
             "timeseries",
             [(f'avg by (run_id) (candlescope_tokens_per_second{{{I},phase="decode"}} * on (job, instance) group_left (run_id) '
               f"candlescope_run_info{{{I}}})", "{{run_id}}")], (), "tokens/s"),
            by_run("Energy a token", "joule", "Gross.", ("hw_energy_joules_total", I), ("candlescope_tokens_total", f'{I},type="output"'),
                   "joules a token"),
        ]),
        ("Layers before and after", 12, 12, [
            ("Layers on the host", "percentunit",
             "Share of each path in its steps, children included, and its time in one step, on the host. A share alone grows when others shrink.",
             "table", layers_then_and_now("host")),
            ("Layers on the GPU", "percentunit",
             "The same on the GPU: mean of the measured intervals × all intervals, by source.", "table", layers_then_and_now("gpu")),
        ]),
        ("Kernels and memory before and after", 8, 7, [
            ("Duration of a kernel, before and after", "s", "Mean duration of recorded kernels, copies and memsets.", "stat",
             [(over(increases("candlescope_kernel_seconds_total", I, "kind", when), increases("candlescope_kernels_total", I, "kind", when)),
               "{{kind}} " + name) for when, name in ((AFTER, "after"), (BEFORE, "before"))]),
            ("GPU memory, before and after", "bytes", "Most device memory in use by anyone.", "stat",
             [(most("hw_gpu_memory_usage_bytes", I, "hw_id")(when), "{{hw_id}} " + name) for when, name in ((AFTER, "after"), (BEFORE, "before"))]),
            ("Resident memory, before and after", "bytes", "Most resident memory of a process.", "stat",
             [(most("process_resident_memory_bytes", I, "instance")(when), "{{instance}} " + name)
              for when, name in ((AFTER, "after"), (BEFORE, "before"))]),
        ]),
    ],
    since="now-1h", refresh="1m",
    marks=[
        annotation("Starts", "blue", f"sum by (instance, run_id, version) (candlescope_run_info{{{I}}} unless on (run_id) "
                                     f"candlescope_run_info{{{I}}} offset 2m)", "{{instance}} started", "{{run_id}} ({{version}})"),
        # An alert of a whole job has no instance, and one of a GPU no job.
        annotation("Alerts", "red", 'ALERTS{alertname=~"Candlescope.+|Gpu.+",alertstate="firing",job=~"$job|",instance=~"$instance|"}',
                   "{{alertname}}", "{{job}} {{instance}} {{figure}} {{path}}"),
    ])

FLEET_RUNS = "candlescope_fleet_runs"
# Who tells runs apart by something else than the model has no label of that name.
F = f'{I},model=~"$model|"'


def daily(metric, more=""):
    """A figure of each day, which has one sample at its beginning."""
    return f"last_over_time(candlescope_fleet_{metric}{{{F}{more}}}[1d])"


def fleet(title, unit, description, metric):
    """The median of the runs of each day."""
    return (title, unit, description + " Median of the runs of a day, by whatever `candlescope summary --by` tells them apart by.",
            "timeseries", [(daily(metric, ',stat="median"'), "{{model}} {{device}} {{version}}")])


FLEET = dashboard(
    "candlescope-fleet", "Fleet", "Headline figures of many runs, day by day, as `candlescope summary --openmetrics` writes them.",
    [variable("model", "Model", f"label_values({FLEET_RUNS}{{{I}}}, model)")],
    [
        ("Latency", 12, 9, [
            fleet("Time to first token", "s", "TTFT.", "ttft_seconds"),
            fleet("Time per output token", "s", "TPOT.", "tpot_seconds"),
        ]),
        ("Steps", 12, 9, [
            fleet("Prefill step", "s", "Host time of a step that reads a prompt.", "prefill_step_seconds"),
            fleet("Decode step", "s", "Host time of a step that makes tokens.", "decode_step_seconds"),
        ]),
        ("Throughput and energy", 12, 9, [
            fleet("Decode throughput", "short", "Output tokens a second while steps decode.", "decode_tokens_per_second"),
            fleet("Energy", "joule", "The GPUs' energy an output token: mean power while measured requests were there.", "energy_joules_per_token"),
        ]),
        ("Runs and changes", 12, 9, [
            ("Changes of level", "percentunit",
             "Days on which the level of a figure changed, with the change as a share of what was before: E-divisive, as in `gate`.",
             "timeseries", [(daily("level_change_ratio"), "{{verdict}} {{figure}} {{model}} {{device}}")]),
            ("Runs", "short", "Runs of a day that a figure rests on.", "timeseries",
             [(daily("runs"), "{{figure}} {{model}} {{device}}")], (), "runs"),
        ]),
    ],
    of=FLEET_RUNS, since="now-90d", refresh="")

stale = []
for name, made in [
    ("llm-inference", LLM), ("gpu", GPUS), ("layers", LAYERS), ("profiler-health", HEALTH), ("deploy", DEPLOY),
    ("fleet", FLEET),
]:
    file = HERE / "dashboards" / f"{name}.json"
    text = json.dumps(made, indent=2) + "\n"
    if "--check" not in sys.argv:
        file.write_text(text)
    elif not file.exists() or file.read_text() != text:
        stale.append(file.name)
if stale:
    sys.exit(f"out of date, run grafana/build.py: {', '.join(stale)}")
