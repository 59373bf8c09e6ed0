"""A compiled program: from constants and leaves to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Literal

from symjac import _compat

_MAX_EMBEDDED_BYTES = 16384
"""Larger constants of a program are arguments: the compiler copies, prints and folds what is embedded."""


@dataclass(frozen=True)
class Program:
    """A program whose outputs that are inputs are returned as they are, and left out of what is compiled.

    Attributes:
        forwarded: For each output the position of the input (constants and then leaves) that it is, or None.
        used: The positions of the inputs that the compiled part needs.
        run: The compiled part, of `owned` and the used inputs, or None where nothing is left to compute.
        owned: The large constants that the program brings along.
    """

    forwarded: tuple[int | None, ...]
    used: tuple[int, ...]
    run: Callable[..., list[Array]] | None
    owned: tuple[Array, ...] = ()

    @property
    def n_bytes(self) -> int:
        """The size of the arrays that the program holds."""
        return sum(const.nbytes for const in self.owned)

    def __call__(self, consts: Sequence[Any], leaves: Sequence[Any]) -> list[Array]:
        """Computes the outputs."""
        inputs = (*consts, *leaves)
        if self.run is None:
            return [_as_array(inputs[i]) for i in self.forwarded]  # type: ignore[index]
        computed = self.run(self.owned, *[inputs[i] for i in self.used])
        if len(computed) == len(self.forwarded):
            return computed
        remaining = iter(computed)
        return [next(remaining) if i is None else _as_array(inputs[i]) for i in self.forwarded]


def build_program(
    engine: Callable[[Sequence[Any], Sequence[Any]], list[Array]], consts: Sequence[Any], leaves: Sequence[Any]
) -> Program:
    """Traces an engine, and prepares the compilation of what has to be computed. The first call compiles it."""
    traced = jax.make_jaxpr(engine)(list(consts), list(leaves))
    jaxpr, own = _compat.opened(traced)
    position = {var: i for i, var in enumerate(jaxpr.invars[len(own) :])}
    forwarded = tuple(None if isinstance(out, Literal) else position.get(out) for out in jaxpr.outvars)
    if traced.effects:
        forwarded = (None,) * len(forwarded)
    elif None not in forwarded:
        return Program(forwarded, (), None)
    needed = [i is None for i in forwarded]
    jaxpr, kept = _compat.without_dead_code(jaxpr, [False] * len(jaxpr.invars), needed)
    own = [_as_array(const) for const, keep in zip(own, kept, strict=False) if keep]
    used = tuple(i for i, keep in enumerate(kept[len(kept) - len(position) :]) if keep)
    is_large = [const.nbytes > _MAX_EMBEDDED_BYTES for const in own]
    owned = tuple(const for const, large in zip(own, is_large, strict=True) if large)
    embedded = [None if large else const for const, large in zip(own, is_large, strict=True)]

    def symjac(owned: Sequence[Array], *args: Any) -> list[Array]:
        large = iter(owned)
        consts = [next(large) if const is None else const for const in embedded]
        return jax.core.eval_jaxpr(jaxpr, (), *consts, *args)

    return Program(forwarded, used, jax.jit(symjac), owned)


def _as_array(value: Any) -> Array:
    return value if type(value) is _compat.ArrayImpl or isinstance(value, Array) else jnp.array(value)
