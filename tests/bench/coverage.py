"""How often a study's 95 % interval holds the median that the other studies of the same case found.

Nobody knows the true median. The median of the others' medians is near it, but has an error of its own, so that an
interval that is right holds it a little less often than it says."""

import json
import pathlib
import statistics
import sys


def main(folder):
    studies = []
    for path in sorted(folder.glob("*/baseline_metrics.json")):
        experience = json.loads(path.read_text())["user_experience"]
        studies.append({name: experience[name] for name in ("ttft_ms", "tpot_ms", "e2e_ms")})
    if len(studies) < 3:
        sys.exit(f"{folder} has {len(studies)} studies: at least 3 are needed")
    found = {}
    for name in studies[0]:
        medians = [study[name]["median"] for study in studies]
        inside, widths = 0, []
        for at, study in enumerate(studies):
            if study[name]["median_ci95"] is None:
                sys.exit(f"study {at + 1} has no interval of {name}: it takes six process starts")
            low, high = study[name]["median_ci95"]
            others = statistics.median(medians[:at] + medians[at + 1 :])
            inside += low <= others <= high
            widths.append((high - low) / study[name]["median"])
        found[name] = {
            "studies": len(studies),
            "inside": inside,
            "median_of_medians": statistics.median(medians),
            "lowest_median": min(medians),
            "highest_median": max(medians),
            "median_width_of_median": statistics.median(widths),
        }
        print(
            f"{name}: {inside} of {len(studies)} intervals hold the others' median; medians "
            f"{min(medians):.4g} to {max(medians):.4g}, intervals {100 * statistics.median(widths):.1f} % wide"
        )
    (folder / "coverage.json").write_text(json.dumps(found, indent=1) + "\n")


main(pathlib.Path(sys.argv[1]))
