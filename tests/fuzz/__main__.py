"""`python -m tests.fuzz --seed 0 --n 1000`: compares random programs, and prints each failure as a small program."""

from __future__ import annotations

import argparse
import collections
import gc
import sys
import time
import traceback
from random import Random

import jax

jax.config.update("jax_enable_x64", True)

import symjac  # noqa: E402

from . import operations  # noqa: E402, F401
from .builder import build  # noqa: E402
from .compare import TRANSFORMS, Outcome, compare, is_rounding, transforms_for  # noqa: E402
from .program import Program  # noqa: E402
from .shrink import shrink  # noqa: E402


def main() -> int:
    """Runs the fuzzer; 1 where something failed."""
    options = _options()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # Traces make much garbage without cycles.
    counts: collections.Counter[str] = collections.Counter()
    seen: collections.Counter[str] = collections.Counter()
    started = time.perf_counter()
    seed = options.seed
    for seed in range(options.seed, options.seed + options.n):
        if counts["failed"] >= options.stop:
            break
        if options.seconds and time.perf_counter() - started > options.seconds:
            break
        if seed % 2000 == 1999:
            jax.clear_caches()
            gc.collect()
        _one(seed, options, counts, seen)
    elapsed = time.perf_counter() - started
    tried = counts["programs"]
    print(
        f"seeds {options.seed} to {seed}: {tried} programs in {elapsed:.0f} s ({tried / elapsed:.1f}/s) "
        f"on JAX {jax.__version__}"
    )
    print(", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))
    for message, count in seen.most_common(40):
        print(f"{count:6d} {message}")
    return 1 if counts["failed"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=1000, help="the number of programs")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many seconds")
    parser.add_argument("--depth", type=int, default=30, help="the largest number of lines")
    parser.add_argument("--transform", choices=TRANSFORMS, help="compare this one only")
    parser.add_argument(
        "--compiled", type=float, default=0.02, help="the share of programs that are run as a user does"
    )
    parser.add_argument("--stop", type=int, default=50, help="stop after so many failures")
    parser.add_argument("--no-shrink", action="store_true", help="print failures as they are found")
    parser.add_argument("--traceback", action="store_true", help="print the traceback of an error")
    return parser.parse_args()


def _one(
    seed: int, options: argparse.Namespace, counts: collections.Counter[str], seen: collections.Counter[str]
) -> None:
    random = Random(seed)
    try:
        program = build(random, _depth(random, options.depth))
    except Exception as error:
        counts["not built"] += 1
        seen[f"not built: {type(error).__name__}: {str(error)[:100]}"] += 1
        return
    counts["programs"] += 1
    compiled = random.random() < options.compiled
    for transform in [options.transform] if options.transform else transforms_for(program, random):
        outcome = compare(program, transform, compiled=compiled)
        if is_rounding(program, outcome):
            outcome = Outcome("rounding", transform)
        counts[outcome.kind] += 1
        if outcome.kind == "skipped":
            seen[f"skipped: {outcome.message[:80]}"] += 1
        if outcome.kind == "dropped":
            seen[f"dropped: seed {seed}, {transform}"] += 1
        if outcome.failed and seen[f"{transform} {_kind(outcome)}"] >= 2:
            seen[f"{transform} {_kind(outcome)}"] += 1
            return
        if outcome.failed:
            seen[_report(seed, program, outcome, options, compiled)] += 1
            sys.stdout.flush()
            return


def _depth(random: Random, largest: int) -> int:
    """A number of lines: short programs are more often new, and are run in less time."""
    return min(random.randint(1, largest) for _ in range(3))


def _report(seed: int, program: Program, outcome: Outcome, options: argparse.Namespace, compiled: bool) -> str:
    """Prints a failure, and gives a line that is the same for alike failures."""
    kind = _kind(outcome)

    def fails(candidate: Program) -> bool:
        result = compare(candidate, outcome.transform, compiled=compiled)
        return result.failed and _kind(result) == kind

    if not options.no_shrink:
        program = shrink(program, fails)
        outcome = compare(program, outcome.transform, compiled=compiled)
    print(f"# seed {seed}, {outcome.transform}: {outcome.message}\n{program.script()}")
    if options.traceback and kind.startswith("raises"):
        try:
            jax.make_jaxpr(
                getattr(symjac, "jacfwd" if outcome.transform in ("linearize", "outer") else outcome.transform)(
                    program.function(), program.argnums, holomorphic=program.holomorphic
                )
            )(*program.arguments())
        except Exception:
            print("".join(traceback.format_exc().split("---")[0].splitlines(keepends=True)[-9:]))
    return f"{outcome.transform} {kind}"


def _kind(outcome: Outcome) -> str:
    words = outcome.message.split(": ", 2)
    return " ".join(words[:2])[:60] if outcome.message.startswith("raises") else words[1 if len(words) > 1 else 0][:8]


if __name__ == "__main__":
    sys.exit(main())
