"""The headline workloads on an accelerator, in under four minutes: `python benchmarks/gpu.py`.

Times are of blocked calls after a warm-up, medians; values are checked against JAX's. Without an accelerator it says
so. It needs symjac and JAX (0.11 or newer) for the accelerator, and nothing else.
"""

from __future__ import annotations

import pathlib
import sys
import time

import jax
import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from benchmarks.case import Workload
from benchmarks.measure import contenders, run_times
from benchmarks.workloads import named

HEADLINE = (
    "linear", "elementwise", "mlp_hourglass", "batched_mlp", "softmax_batch", "attention", "conv", "burgers",
    "kinetics", "nbody", "bundle_points", "logistic_hessian", "rosenbrock_hessian",
)  # fmt: skip
SECONDS = 220.0
TOLERANCE = 2e-3  # accelerators multiply in reduced precision by default


def main() -> int:
    """Runs the workloads until the time is over; 1 where a value is wrong."""
    if jax.default_backend() == "cpu":
        print("No accelerator: JAX sees only CPUs, so there is nothing to measure here.")
        return 0
    jax.config.update("jax_default_matmul_precision", "highest")
    started = time.perf_counter()
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}")
    print(f"{'workload':<20}{'size':>6}{'contender':>17}{'first':>9}{'run us':>11}{'spread':>9}  {'speed-up':>9}")
    wrong = 0
    for workload in named(list(HEADLINE)):
        if time.perf_counter() - started > SECONDS:
            print("stopped: the time is over")
            break
        wrong += _measure(workload, workload.sizes[2])
    print(f"{time.perf_counter() - started:.0f} s; {wrong} wrong values")
    return 1 if wrong else 0


def _measure(workload: Workload, size: int) -> int:
    wrong = _wrong(workload, size)
    times = run_times(workload, size, rounds=5)
    best = min(entry.median for name, entry in times.items() if name.startswith("jax."))
    for name, entry in times.items():
        print(
            f"{workload.name:<20}{size:>6}{name:>17}{entry.first:>9.2f}{entry.median * 1e6:>11.0f}"
            f"{entry.spread * 1e6:>9.0f}  {best / entry.median:>9.2f}",
            flush=True,
        )
    return wrong


def _wrong(workload: Workload, size: int) -> int:
    """How many of symjac's results differ from JAX's."""
    case = workload.make(size)
    results = {name: np.asarray(f(*case.args)) for name, f in contenders(workload, case).items() if name != "filling"}
    want = results[f"jax.{workload.mode}"]
    scale = float(np.abs(want).max())
    bad = [name for name, value in results.items() if not np.abs(value - want).max() <= TOLERANCE * scale]
    for name in bad:
        print(f"{workload.name}: {name} differs by {np.abs(results[name] - want).max() / scale:.2e}")
    return len(bad)


if __name__ == "__main__":
    sys.exit(main())
