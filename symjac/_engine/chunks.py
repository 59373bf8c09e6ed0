"""Bounded memory: the basis is pushed through a linear program in chunks, where structure does not help."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Jaxpr
from jax.extend.core import Literal as JaxprLiteral

from symjac import _compat
from symjac._engine.program import LinearProgram
from symjac._types import aval_of

ChunkSize = int | Literal["auto"] | None

SHARE_OF_MEMORY = 0.125
"""The share of the free memory that the temporaries may take with `chunk_size="auto"`."""

_ASSUMED_FREE_BYTES = 2**32
"""Where neither the device nor the system tells how much memory is free."""


def checked_chunk_size(chunk_size: Any) -> ChunkSize:
    """Returns a chunk size.

    Raises:
        ValueError: unless it is None, "auto", or a positive integer.
    """
    is_count = isinstance(chunk_size, int) and not isinstance(chunk_size, bool) and chunk_size > 0
    if chunk_size is None or chunk_size == "auto" or is_count:
        return chunk_size
    raise ValueError(f'chunk_size must be None, "auto" or a positive integer, but got {chunk_size!r}.')


def chunk_for(program: LinearProgram, temporaries: int, chunk_size: int | Literal["auto"]) -> int | None:
    """Returns how many basis vectors to push at once, or None where the structured way needs no more memory.

    Args:
        program: The linear program.
        temporaries: The bytes that the structured way needs.
        chunk_size: What the user asks for.
    """
    jaxpr, _ = _compat.opened(program.closed)
    each = max(peak_bytes(jaxpr, jaxpr.invars[len(jaxpr.invars) - _n_tangents(program) :]), 1)
    budget = SHARE_OF_MEMORY * _free_bytes() if chunk_size == "auto" else each * chunk_size
    return None if temporaries <= budget else max(int(budget // each), 1)


def _n_tangents(program: LinearProgram) -> int:
    return len(program.closed.in_avals) - program.n_primals


def push_in_chunks(
    program: LinearProgram, consts: Sequence[Array], primals: Sequence[Array], chunk: int, *, transposed: bool
) -> tuple[list[Array], list[list[Array]]]:
    """Pushes a dense basis through a linear program.

    Returns:
        The values, and for each out tangent and each tangent input the block, with the axes of the former first, or
        those of the latter if transposed.
    """
    values, linear, avals = _known_part(program, consts, primals)
    columns = []
    for j, aval in enumerate(avals):
        size = math.prod(aval.shape)

        def column(k: Array, j: int = j, size: int = size) -> list[Array]:
            tangents = [jnp.zeros(each.shape, each.dtype) for each in avals]
            tangents[j] = jnp.zeros(size, avals[j].dtype).at[k].set(1).reshape(avals[j].shape)
            return linear(tangents)

        stacked = _map_in_chunks(column, size, chunk) if size else _empty(program)
        columns.append([_block(out, aval.shape, transposed) for out in stacked])
    return values, [list(row) for row in zip(*columns, strict=True)]


def _map_in_chunks(column: Callable[[Array], list[Array]], size: int, chunk: int) -> list[Array]:
    """Stacks the results for 0 to `size`. The batches of `lax.map` itself fail on empty arrays in JAX 0.7."""
    chunk = min(chunk, size)
    indices = jnp.minimum(jnp.arange(-(-size // chunk) * chunk), size - 1).reshape(-1, chunk)
    mapped = jax.lax.map(jax.vmap(column), indices)
    return [out.reshape(indices.size, *out.shape[2:])[:size] for out in mapped]


def _block(stacked: Array, basis_shape: tuple[int, ...], transposed: bool) -> Array:
    if transposed:
        return stacked.reshape(basis_shape + stacked.shape[1:])
    return jnp.moveaxis(stacked, 0, -1).reshape(stacked.shape[1:] + basis_shape)


def _empty(program: LinearProgram) -> list[Array]:
    return [jnp.zeros((0, *aval.shape), aval.dtype) for aval in program.closed.out_avals[program.n_values :]]


def _known_part(
    program: LinearProgram, consts: Sequence[Array], primals: Sequence[Array]
) -> tuple[list[Array], Callable[[Sequence[Array]], list[Array]], list[Any]]:
    """Evaluates what does not depend on tangents.

    Returns:
        The values, the linear function that is left, and the types of its arguments.
    """
    jaxpr, _ = _compat.opened(program.closed)
    n_known = len(consts) + program.n_primals
    known: dict[Any, Any] = dict(zip(jaxpr.invars, [*consts, *primals], strict=False))
    left = [eqn for eqn in jaxpr.eqns if not _evaluate_if_known(eqn, known)]
    tangents = jaxpr.invars[n_known:]

    def run(arrays: Sequence[Array]) -> list[Array]:
        env = {**known, **dict(zip(tangents, arrays, strict=True))}
        for eqn in left:
            results = _compat.bind_equation(eqn, [_read(env, atom) for atom in eqn.invars])
            env.update(zip(eqn.outvars, results, strict=True))
        return [_read(env, out) for out in jaxpr.outvars]

    avals = [aval_of(var) for var in tangents]
    if all(isinstance(out, JaxprLiteral) or out in known for out in jaxpr.outvars[: program.n_values]):
        values = [_read(known, out) for out in jaxpr.outvars[: program.n_values]]
    else:  # A loop gives values and tangents together.
        values = run([jnp.zeros(aval.shape, aval.dtype) for aval in avals])[: program.n_values]
    return values, lambda arrays: run(arrays)[program.n_values :], avals


def _evaluate_if_known(eqn: Any, known: dict[Any, Any]) -> bool:
    if not all(isinstance(atom, JaxprLiteral) or atom in known for atom in eqn.invars):
        return False
    results = _compat.bind_equation(eqn, [_read(known, atom) for atom in eqn.invars])
    known.update(zip(eqn.outvars, results, strict=True))
    return True


def _read(env: dict[Any, Any], atom: Any) -> Any:
    return atom.val if isinstance(atom, JaxprLiteral) else env[atom]


def peak_bytes(jaxpr: Jaxpr, sources: Sequence[Any] | None = None) -> int:
    """Returns the most bytes that intermediate results of a jaxpr take at once, beside its inputs and outputs.

    Args:
        jaxpr: The jaxpr, without constants.
        sources: Inputs; only what depends on them counts. The default is everything.
    """
    counted = set(jaxpr.invars if sources is None else sources)
    last_use = {
        atom: i for i, eqn in enumerate(jaxpr.eqns) for atom in eqn.invars if not isinstance(atom, JaxprLiteral)
    }
    excluded = {atom for atom in [*jaxpr.invars, *jaxpr.outvars] if not isinstance(atom, JaxprLiteral)}
    expiring: dict[int, int] = {}
    live = peak = 0
    for i, eqn in enumerate(jaxpr.eqns):
        if sources is not None and not any(
            atom in counted for atom in eqn.invars if not isinstance(atom, JaxprLiteral)
        ):
            continue
        counted.update(eqn.outvars)
        inner = max(map(peak_bytes, _compat.inner_jaxprs(eqn.params)), default=0)
        for var in eqn.outvars:
            size = 0 if var in excluded else _bytes(var.aval)
            live += size
            expiring[last_use.get(var, i)] = expiring.get(last_use.get(var, i), 0) + size
        peak = max(peak, live + inner)
        live -= expiring.get(i, 0)
    return peak


def _bytes(aval: Any) -> int:
    return math.prod(aval.shape) * aval.dtype.itemsize if hasattr(aval, "dtype") else 0


def _free_bytes() -> float:
    """Returns the free memory of the default device, or of the system where the device does not tell."""
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _ASSUMED_FREE_BYTES
