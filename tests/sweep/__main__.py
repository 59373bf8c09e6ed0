"""`make sweep`: runs the whole table and prints what differs from JAX.

python -m tests.sweep            everything
python -m tests.sweep sinc       what has this in its name
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
import warnings
import zlib

import jax

from .run import primitives_met, primitives_with_derivatives, run
from .table import calls


def main() -> int:
    """Runs the table; 1 where something differs."""
    options = _options()
    words = options.words
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    started = time.perf_counter()
    for i, call in enumerate(call for call in calls() if all(word in call.name for word in words)):
        if i % 500 == 499:
            jax.clear_caches()
        for transform in ("jacfwd", "jacrev"):
            if transform == "jacrev" and zlib.crc32(call.name.encode()) % options.reverse:
                continue
            result = run(call, transform)
            counts[result if result in ("same", "both raise") else result.split(":")[0].split(" ")[0]] += 1
            if result not in ("same", "both raise"):
                print(f"{call.name} {transform}: {result}", flush=True)
    missing = sorted(primitives_with_derivatives() - primitives_met())
    print(f"{time.perf_counter() - started:.0f} s on JAX {jax.__version__}: {dict(counts)}")
    if not words:
        print(f"primitives with a derivative that no call reached: {', '.join(missing) or 'none'}")
    return 0 if set(counts) <= {"same", "both raise", "works"} else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sweep", description="Runs the sweep.")
    parser.add_argument("words", nargs="*", help="run what has all of these in its name")
    parser.add_argument("--reverse", type=int, default=1, help="try jacrev on one call in so many")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
