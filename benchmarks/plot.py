"""A plot of the run times; needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def plot(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Draws the run time of every contender on every workload, at the largest size measured."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    largest = {row["workload"]: row["size"] for row in rows}
    key = "median" if "median" in rows[0] else "flops"
    names = list(largest)
    figure, axes = plt.subplots(figsize=(8, 0.3 * len(names) + 1.5))
    for contender in dict.fromkeys(row["contender"] for row in rows):
        own = [r for r in rows if r["contender"] == contender and r["size"] == largest[r["workload"]]]
        places = [names.index(row["workload"]) for row in own]
        axes.plot([row[key] for row in own], places, "o", label=contender, alpha=0.7)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("run time (s)" if key == "median" else "flops")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
