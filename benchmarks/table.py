"""The README's table, from the results of `python -m benchmarks.run --json benchmarks/results.json`.

python -m benchmarks.table benchmarks/results.json
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from .measure import UNDER_JIT
from .run import geometric_mean, ratios

SHOWN = {
    "linear": "`A @ x`",
    "chain": "three matrices, wide, narrow, wide",
    "mlp_square": "MLP, four square layers",
    "mlp_hourglass": "MLP with a neck",
    "batched_mlp": "a layer on a batch",
    "attention": "attention, one head",
    "conv": "convolution, by its input",
    "burgers": "Burgers, a stencil",
    "brusselator": "Brusselator, a stencil in 2-D",
    "finite_elements": "finite elements, gather and scatter-add",
    "kinetics": "reaction kinetics in cells",
    "nbody": "N bodies",
    "bundle_points": "bundle adjustment, by the points",
    "rnn": "recurrent network, by its inputs",
    "logistic_hessian": "Hessian of a logistic regression",
    "rosenbrock_hessian": "Hessian of Rosenbrock's function",
    "pinn_hessian": "Hessian of a small network",
    "spectral": "spectral derivative (FFT)",
    "robot_arm": "robot arm",
    "robertson": "Robertson, 3 x 3",
}


def main() -> int:
    """Prints the table."""
    results = json.loads(pathlib.Path(sys.argv[1]).read_text())
    print(table(results["rows"]))
    return 0


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A row for each workload shown, at its largest size, in Markdown."""
    columns = {"hand-written": "by hand"}
    if all(any(row["contender"] == UNDER_JIT for row in rows if row["workload"] == name) for name in SHOWN):
        columns = {UNDER_JIT: "symjac under jit", **columns}
    head = ("workload", "JAX as written", "JAX's better mode", "symjac", *columns.values())
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, words in SHOWN.items():
        size = max(row["size"] for row in rows if row["workload"] == name)
        own = {row["contender"]: row for row in rows if (row["workload"], row["size"]) == (name, size)}
        user = next(row["median"] for row in own.values() if row["user"])
        better = min(row["median"] for key, row in own.items() if key.startswith("jax."))
        ours = own["symjac.hessian" if "symjac.hessian" in own else "symjac.jacobian"]["median"]
        others = (own[contender]["median"] for contender in columns)
        times = [_time(each) for each in (user, better, ours, *others)]
        lines.append(f"| {words} | {' | '.join(times)} |")
    found = ratios(rows, "median")
    user, best, hand = (geometric_mean([row[key] for row in found]) for key in ("user", "best", "hand"))
    count = len({row["workload"] for row in found})
    means = (
        f"geometric means over {count} workloads at three sizes: {1 / user:.2g}x over JAX as written, "
        f"{1 / best:.2g}x over its better mode, {hand:.2g} of the time of the Jacobian written by hand"
    )
    return "\n".join([*lines, "", means])


def _time(seconds: float) -> str:
    scale, unit = next((s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if seconds >= s or u == "us")
    return f"{seconds / scale:.3g} {unit}"


if __name__ == "__main__":
    sys.exit(main())
