"""`make bench`: every workload, symjac against JAX's modes and the Jacobian written by hand.

python -m benchmarks.run                     everything at three sizes
python -m benchmarks.run --quick             the medium size only
python -m benchmarks.run --static            only what XLA says of the compiled programs
python -m benchmarks.run attention nbody     some workloads
python -m benchmarks.run --quick --peers     with other packages, where they are installed
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import pathlib
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import jax

from .case import Workload
from .measure import UNDER_JIT, compiled, contenders, exponent, run_times
from .workloads import named

Row = dict[str, Any]
HEAD = (
    f"{'workload':<20}{'size':>6}{'contender':>17}"
    f"{'first':>9}{'run':>11}{'spread':>9}{'MFLOP':>10}{'MB':>9}{'peak MB':>9}"
)

RATIOS = ("best", "user", "hand", "jit best", "jit hand")
LIMITS = {"best": 1.1, "hand": 1.3, "jit best": 1.1, "jit hand": 1.3}
"""What is noise, and what is tolerated."""

COLUMNS = {
    "median": "run time",
    "least": "shortest run time",
    "first": "first call",
    "flops": "flops",
    "bytes": "bytes",
    "memory": "peak memory",
}


def main() -> int:
    """Measures, prints the tables and writes the results."""
    options = _options()
    rows: list[Row] = []
    print(HEAD)
    for workload in named(options.names):
        for size in _sizes(workload, options.quick):
            rows.extend(_measure(workload, size, options.static, options.peers))
            gc.collect()
    if not options.quick:
        _print_growth(rows)
    _print_ratios(rows)
    _print_peers(rows)
    if options.json:
        results = {"jax": jax.__version__, "device": jax.devices()[0].device_kind, "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    if options.plot:
        from .plot import plot

        plot(rows, options.plot)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measures the workloads.")
    parser.add_argument("names", nargs="*", help="the workloads; all where none is given")
    parser.add_argument("--quick", action="store_true", help="the medium size only")
    parser.add_argument("--static", action="store_true", help="what XLA says only, no times")
    parser.add_argument("--peers", action="store_true", help="other packages too, where they are installed")
    parser.add_argument("--json", help="where to write the results")
    parser.add_argument("--plot", help="where to write the plot (needs matplotlib)")
    return parser.parse_args()


def _sizes(workload: Workload, quick: bool) -> Sequence[int]:
    return workload.sizes[1:2] if quick else workload.sizes


def _measure(workload: Workload, size: int, static: bool, with_peers: bool) -> list[Row]:
    case = workload.make(size)
    times = {} if static else run_times(workload, size, with_peers=with_peers)
    rows = []
    for name, function in contenders(workload, case, with_peers=with_peers).items():
        if times and name not in times:
            continue
        if with_peers:
            jax.block_until_ready(function(*case.args))  # What it finds out beforehand is no part of the program.
        row: Row = {"workload": workload.name, "size": size, "contender": name, "user": name == f"jax.{workload.mode}"}
        row |= vars(compiled(function, case.args)) if name != "torch" else {}
        if name in times:
            row |= vars(times[name])
        rows.append(row)
        print(_line(row), flush=True)
    return rows


def _line(row: Row) -> str:
    def number(key: str, scale: float, digits: int) -> str:
        return f"{row[key] * scale:.{digits}f}" if key in row else ""

    return (
        f"{row['workload']:<20}{row['size']:>6}{row['contender']:>17}"
        f"{number('first', 1, 3):>9}{number('median', 1e6, 0):>11}{number('spread', 1e6, 0):>9}"
        f"{number('flops', 1e-6, 3):>10}{number('bytes', 1e-6, 2):>9}{number('memory', 1e-6, 2):>9}"
    )


def _print_growth(rows: Sequence[Row]) -> None:
    print("\ngrowth with the size (exponents)")
    for workload in dict.fromkeys(row["workload"] for row in rows):
        own = [row for row in rows if row["workload"] == workload]
        texts = []
        for contender in dict.fromkeys(row["contender"] for row in own):
            series = [row for row in own if row["contender"] == contender]
            key = "median" if "median" in series[0] else "flops"
            slope = exponent([row["size"] for row in series], [row[key] for row in series])
            texts.append(f"{contender} {slope:.2f}")
        print(f"{workload:<20} {'  '.join(texts)}")


def ratios(rows: Sequence[Row], key: str) -> list[Row]:
    """For each workload and size, symjac's value over those of JAX's modes and of the hand-written Jacobian.

    "best", "user" and "hand" are those of the function as it is called, "jit best" and "jit hand" under `jax.jit`.
    """
    found = []
    for workload, size in dict.fromkeys((row["workload"], row["size"]) for row in rows):
        own = {row["contender"]: row for row in rows if (row["workload"], row["size"]) == (workload, size)}
        if any(key not in row for row in own.values()):
            continue
        ours = own["symjac.hessian" if "symjac.hessian" in own else "symjac.jacobian"][key]
        user = next(row[key] for row in own.values() if row["user"])
        best = min(row[key] for name, row in own.items() if name.startswith("jax."))
        hand = own["hand-written"][key]
        jitted = own.get(UNDER_JIT, {}).get(key, math.nan)  # Older results have none.
        row = {"best": _ratio(ours, best), "user": _ratio(ours, user), "hand": _ratio(ours, hand)}
        row |= {"jit best": _ratio(jitted, best), "jit hand": _ratio(jitted, hand)}
        found.append({"workload": workload, "size": size, **row})
    return found


def _print_peers(rows: Sequence[Row]) -> None:
    """The geometric means of symjac's figures over those of the other packages, where these run."""
    ours = {(r["workload"], r["size"]): r for r in rows if r["contender"] in ("symjac.jacobian", "symjac.hessian")}
    names = dict.fromkeys(row["contender"] for row in rows)
    for name in names:
        if "." in name or name in (UNDER_JIT, "hand-written", "filling"):
            continue
        own = [row for row in rows if row["contender"] == name]
        pairs = [(ours[row["workload"], row["size"]], row) for row in own]
        print(f"\nsymjac over {name}, on {len(own)} workloads (geometric means)")
        for key, title in COLUMNS.items():
            if all(key in row for pair in pairs for row in pair):
                print(f"{title:<20}{geometric_mean([_ratio(a[key], b[key]) for a, b in pairs]):>9.3f}")


def _ratio(a: float, b: float) -> float:
    return a / b if b else (1.0 if a == 0 else math.inf)


def _print_ratios(rows: Sequence[Row]) -> None:
    for key, title in COLUMNS.items():
        table = ratios(rows, key)
        if not table:
            continue
        print(f"\n{title}: symjac as called over JAX's better mode, JAX as written, the hand-written Jacobian;")
        print("then symjac under jax.jit over JAX's better mode, the hand-written Jacobian")
        for row in sorted(table, key=lambda row: -row["best"]):
            print(f"{row['workload']:<20}{row['size']:>6}" + "".join(f"{row[column]:>9.3f}" for column in RATIOS))
        means = [geometric_mean([row[column] for row in table]) for column in RATIOS]
        print(f"{'geometric mean':<26}" + "".join(f"{mean:>9.3f}" for mean in means))
        over = [sum(row[column] > LIMITS.get(column, math.inf) for row in table) for column in RATIOS]
        print(f"{'over the limit':<26}" + "".join(f"{count:>9d}" for count in over))


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of the values that are positive and finite."""
    usable = [value for value in values if 0 < value < math.inf]
    return statistics.geometric_mean(usable) if usable else math.nan


if __name__ == "__main__":
    sys.exit(main())
