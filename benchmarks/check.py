"""`make bench-check`: what XLA says of every workload's compiled program, against a committed baseline.

Flops, bytes and peak memory come from the compiled program, so that they are the same on every run on one version of
JAX and kind of machine. The baseline holds them for each version that it was recorded with.

    python -m benchmarks.check              fails where a figure grew by more than 5 %
    python -m benchmarks.check --record     writes the baseline for this version of JAX
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

import jax

from .case import Workload
from .measure import compiled, contenders
from .workloads import named

BASELINE = pathlib.Path(__file__).with_name("baseline.json")
GROWTH = 1.05
SLACK = 4096.0  # a few flops or bytes more are no growth
FIGURES = ("flops", "bytes", "memory")

Figures = dict[str, dict[str, float]]


def main() -> int:
    """Compares or records; 1 where a figure grew."""
    options = _options()
    version = jax.__version__
    stored = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    if not options.record and version not in stored:
        print(f"no baseline for JAX {version}; there are {', '.join(sorted(stored)) or 'none'}")
        return 0
    found = {workload.name: figures(workload) for workload in named(options.names)}
    if options.record:
        stored[version] = {**stored.get(version, {}), **found}
        BASELINE.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
        print(f"recorded {len(found)} workloads for JAX {version}")
        return 0
    grown = [line for name, now in found.items() for line in compare(name, now, stored[version].get(name, {}))]
    print("\n".join(grown) or f"{len(found)} workloads: nothing grew by more than 5 % (JAX {version})")
    return 1 if grown else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description="Guards the compiled programs.")
    parser.add_argument("names", nargs="*", help="the workloads; all where none is given")
    parser.add_argument("--record", action="store_true", help="write the baseline")
    return parser.parse_args()


def figures(workload: Workload) -> Figures:
    """The figures of symjac's transforms at the medium size."""
    case = workload.make(workload.sizes[1])
    own = {name: f for name, f in contenders(workload, case).items() if name.startswith("symjac.")}
    return {name: dict(vars(compiled(function, case.args))) for name, function in own.items()}


def compare(name: str, now: Figures, before: Figures) -> list[str]:
    """A line for each figure that grew."""
    lines = []
    for transform, old in before.items():
        for figure in FIGURES:
            new = now[transform][figure]
            if new > GROWTH * old[figure] + SLACK:
                lines.append(f"{name} {transform}: {figure} {old[figure]:.6g} -> {new:.6g}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
