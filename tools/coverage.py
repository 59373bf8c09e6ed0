"""Writes docs/coverage.md: every linear primitive of JAX, its kind of rule, and the case that proves it.

The kind is observed, not claimed: each case is differentiated, and the engine's record says what it did. Rows of
primitives that the running JAX does not have are kept, so that the page can be made on several versions in turn.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.interpreters import ad
from jax.experimental import sparse

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "coverage.md"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from rule_cases import Case, backwards, case  # noqa: E402

import symjac  # noqa: E402
from symjac._algebra.record import recording  # noqa: E402
from symjac._engine.interpreter import registered  # noqa: E402

FILES = ("elementwise", "layout", "contraction", "indexing", "convolution", "pooling", "control_flow")
LOOPS_AND_CALLS = ("scan", "while", "cond", "jit", "remat2", "custom_jvp_call", "dynamic_slice", "slice", "gather")

KINDS = {
    "structural": "keeps its structure",
    "by axis": "keeps the structure of the axes that it does not act on",
    "fallback": "is done densely, as `jax.jacfwd` does it",
    "none": "does not meet a tangent",
}

_PREFERENCE = ("fallback", "structural", "by axis")
"""Of several cases of a primitive the one whose kind is last here is shown."""

# Primitives that no case of one line reaches, and why.
REASONS = {
    r"(all_|p?psum|psum|pp?ermute|pbroadcast|pvary|preduced|ragged_all|reduce_scatter|reduced_|unreduced_|vary_)\w*": (
        "none",
        "a collective: it is inside of `shard_map`, which is done as a whole",
    ),
    r"(debug_|io_callback|pure_callback|ffi_call|dce_sink|log_|new_|box_|tie|stage|from_edtype|to_edtype)\w*": (
        "none",
        "effects, callbacks and references: JAX does not differentiate it in forward mode",
    ),
    r"(announce_jaxpr|custom_transpose_call|remat_opt|custom_lin|vprim|composite|(closed_)?call|eval_jaxpr)": (
        "none",
        "internal to JAX: it is gone when the derivative is traced",
    ),
    r"(global_array_to_host_local_array|host_local_array_to_global_array)": ("none", "a tool for several hosts"),
    r"(mesh_cast|run_state|xla_pmap)": ("none", "only old versions of JAX have it"),
    r"(get|swap|addupdate)": ("none", "mutable references: `jax.jacfwd` raises"),
    r"(call_hi_primitive\w*|vjp_node\[\w+\]|custom_jvp_call)": (
        "none",
        "internal to JAX: it is gone when the derivative is traced",
    ),
    r"(layout_constraint|relayout|with_memory_space_constraint|reshard|sharding_constraint|copy_p)": (
        "by registration",
        "an identity; it needs devices or a mesh",
    ),
    r"(coo_\w+|csr_\w+|ragged_dot_general|linear_call|spsolve)": (
        "none",
        "JAX has no batching rule for it, so that `jax.jacfwd` raises, and symjac too",
    ),
    r"(bcoo_\w+|bcsr_\w+|todense)": ("fallback", "sparse arrays"),
}


@dataclass(frozen=True)
class Entry:
    """What is known about a primitive."""

    kind: str
    proof: str


def extra_cases() -> list[Case]:
    """Cases of primitives that the tests of the rules do not need."""
    x = jnp.linspace(0.1, 1.0, 4)
    matrix = np.array([[1.0, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 1.0]], np.float32)
    bcoo, bcsr = sparse.BCOO.fromdense(jnp.asarray(matrix)), sparse.BCSR.fromdense(jnp.asarray(matrix))
    square = jnp.eye(4) * 3 + jnp.ones((4, 4))

    def sharded(x: Any) -> Any:
        mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
        spec = jax.sharding.PartitionSpec("i")
        return jax.shard_map(jnp.sin, mesh=mesh, in_specs=spec, out_specs=spec)(x)

    return [
        case("triangular solve", lambda x: lax.linalg.triangular_solve(square, x[:, None], left_side=True), x),
        case("tridiagonal solve", lambda x: lax.linalg.tridiagonal_solve(x, x + 5, x, x[:, None]), x),
        case("linear solve", lambda x: jnp.linalg.solve(square, x), x),
        case("fft", lambda x: jnp.real(jnp.fft.fft(x)), x),
        case("BCOO @ x", lambda x: bcoo @ jnp.sin(x), x),
        case("BCOO.data", lambda d: sparse.BCOO((d, bcoo.indices), shape=bcoo.shape).todense(), bcoo.data),
        case("BCOO.fromdense", lambda x: sparse.BCOO.fromdense(x, nse=4).data, jnp.asarray(matrix)),
        case("BCOO.T", lambda d: sparse.BCOO((d, bcoo.indices), shape=bcoo.shape).transpose().todense(), bcoo.data),
        case("BCSR @ x", lambda x: bcsr @ jnp.sin(x), x),
        case("BCSR.data", lambda d: sparse.BCSR((d, bcsr.indices, bcsr.indptr), shape=bcsr.shape).todense(), bcsr.data),
        case("shard_map", sharded, x, reverse=False),
        case("barrier", lambda x: lax.optimization_barrier(jnp.sin(x)), x),
    ]


def cases() -> Iterator[tuple[str, Case]]:
    """Every case, with the place where it is."""
    for name in FILES:
        for one in importlib.import_module(f"rules.test_{name}").CASES:
            yield f"`rules/test_{name}.py`: {one.name}", one
    for one in extra_cases():
        yield f"`coverage.py`: {one.name}", one


def primitives() -> list[str]:
    """The names of all linear primitives of the running JAX: those with a transpose rule, loops and calls."""
    tables = [ad.primitive_transposes, getattr(ad, "fancy_transposes", {})]
    names = {primitive.name for table in tables for primitive, rule in table.items() if _is_jax(rule)}
    return sorted(names | set(LOOPS_AND_CALLS))


def _is_jax(rule: Any) -> bool:
    """Whether a rule is JAX's own; a partial one holds the user's function as an argument."""
    functions = (rule.func, *rule.args) if isinstance(rule, functools.partial) else (rule,)
    return all(
        getattr(function, "__module__", None) is None or function.__module__.startswith("jax") for function in functions
    )


def observed() -> dict[str, Entry]:
    """For each primitive that meets a tangent in some case what the engine did with it, and the first such case."""
    found: dict[str, Entry] = {}
    for proof, one in cases():
        for record in records_of(one):
            kind = "structural"
            if record.fallback:
                kind = "fallback"
            elif "along an axis" in record.notes:
                kind = "by axis"
            known = found.get(record.primitive)
            if known is None or _PREFERENCE.index(kind) > _PREFERENCE.index(known.kind):
                found[record.primitive] = Entry(kind, proof)
    return found


def records_of(one: Case) -> Sequence[Any]:
    """What the engine records for a case."""
    options = {"argnums": one.argnums, "holomorphic": one.holomorphic}
    with recording() as records, symjac.strict(False):
        jax.make_jaxpr(symjac.jacfwd(lambda *a: jax.tree.leaves(one.function(*a)), **options))(*one.args)
        if one.reverse:
            jax.make_jaxpr(lambda *a: backwards(one, *a))(*one.args)
    return records


def entries() -> dict[str, Entry]:
    """What is known about each linear primitive of the running JAX.

    Raises:
        KeyError: where a primitive is in no case, and there is no reason for that.
    """
    found = observed()
    return {name: found[name] if name in found else _reason(name) for name in primitives()}


def _reason(name: str) -> Entry:
    for pattern, (kind, reason) in REASONS.items():
        if re.fullmatch(pattern, name):
            known = {primitive.name for primitive in registered()}
            return Entry(kind.replace("by registration", "structural" if name in known else "fallback"), reason)
    raise KeyError(f"{name} is in no case")


def written() -> dict[str, Entry]:
    """What the page says."""
    text = PAGE.read_text() if PAGE.exists() else ""
    return {m[1]: Entry(m[2], m[3]) for m in re.finditer(r"^\| `([^`]+)` \| ([\w ]+) \| (.*) \|$", text, re.MULTILINE)}


def page(rows: dict[str, Entry]) -> str:
    """The text of the page."""
    counts = {kind: sum(entry.kind == kind for entry in rows.values()) for kind in KINDS}
    lines = [
        "# Coverage",
        "",
        "Every primitive of JAX that can meet a tangent: those with a transpose rule, the loops and the calls. The",
        "kind is what the engine was observed to do in the case that is named.",
        "`python tools/coverage.py` makes this page.",
        "",
        *(f"* **{kind}** ({counts[kind]}): {meaning}." for kind, meaning in KINDS.items()),
        "",
        "A primitive that is not here, such as one of your own, is done densely until it is",
        "[given a rule](how-to/add_a_rule.md).",
        "",
        "| primitive | kind | case |",
        "|---|---|---|",
        *(f"| `{name}` | {entry.kind} | {entry.proof} |" for name, entry in sorted(rows.items())),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(written() | entries()))


if __name__ == "__main__":
    main()
