#!/usr/bin/env python3
"""The page of a server's case study from its load tests, round by round.

    scripts/case-studies/server.py PAGE.md FOLDER ROUNDS SETTING... > NEW.md

A SETTING is NAME=TEXT=OPTIONS, and FOLDER/NAME-ROUND what `candlescope load` wrote. Each is held against the best before it, in its own
round: kept is what gives more output tokens a second in every round.
"""
import json
import pathlib
import statistics
import sys

from page import kept_of, room_for_words

ABSENT = [
    ("tokens that are looked up and checked together (speculation)", "a step of slots passes one token of each; `candlescope profile --speculate` has it, for one sequence"),
]


def figures(folder, name, number):
    results = json.loads((pathlib.Path(folder) / f"{name}-{number}" / "load_test_results.json").read_text())
    return results, results["stages"][0]["figures"]


def spread(values, unit=1e6, digits=0):
    low, high = min(values) / unit, max(values) / unit
    return f"{statistics.median(values) / unit:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main(page, folder, rounds, settings):
    kept, rounds = kept_of(page), range(1, int(rounds) + 1)
    best, rows, last = None, [], None
    for setting in settings:
        name, text, options = setting.split("=", 2)
        found = [figures(folder, name, number) for number in rounds]
        last, all_ = found[-1][0], [figures for _, figures in found]
        rates = [one["output_tokens_per_s"] for one in all_]
        if best is None:
            best, ratio, verdict = rates, "1", "the beginning"
        else:
            ratios = [new / old for new, old in zip(rates, best)]
            ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            won = min(ratios) > 1
            verdict = "**kept**" if won else "rejected" if max(ratios) < 1 else "rejected: not in every round"
            best = rates if won else best
        shared = [one["cached_share"] for one in all_ if one["cached_share"] is not None]
        failed = sum(one["measured"] - one["ok"] for one in all_)
        cached = f"{100 * statistics.median(shared):.0f} %" if shared else "–"
        rows.append(
            f"| {text} | {spread(rates, 1, 1)} | {ratio} | {spread([one['ttft_ns']['median'] for one in all_])} | "
            f"{spread([one['tpot_ns']['median'] for one in all_], digits=1)} | {spread([one['e2e_ns']['median'] for one in all_])} | "
            f"{cached} | {verdict}{f'; {failed} failed' if failed else ''} |"
        )
    heading = "SmolLM2 behind the example server"
    out = ["# A server under load: SmolLM2", ""]
    out += [
        "Made by `scripts/case-studies/server.sh`: the [example server](../../examples/server/README.md) with SmolLM2-135M in Q4_1, and "
        f"`candlescope load` with {last['stages'][0]['level']['value']} clients beside it on the same processors; prompts that begin with the same 80 words "
        f"and end with a question each, 24 tokens of answer. All settings in turns, {len(rounds)} rounds; medians over the rounds with the "
        "least and the most, milliseconds. A setting is held against the best before it, round by round, and kept if it gives more output "
        f"tokens a second in each: one that changes nothing is kept one time in {2 ** len(rounds)}.",
        "",
        f"## {heading}",
        "",
        "| setting | output tokens a second | × the best before | TTFT | TPOT | E2E | prompt from cache | |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "Not tried, because it is not there:",
        "",
        *[f"- {what}: {why}." for what, why in ABSENT],
        *room_for_words(heading, kept),
    ]
    print("\n".join(out).rstrip() + "\n", end="")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
