"""A compiled program: from constants and leaves to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, tree_util
from jax.core import eval_jaxpr
from jax.extend.core import Literal

from symjac import _compat
from symjac._types import PyTreeDef

_MAX_EMBEDDED_BYTES = 16384
"""Larger constants of a program are arguments: the compiler copies, prints and folds what is embedded."""


@dataclass(frozen=True)
class Program:
    """A program whose outputs that are inputs are returned as they are, and left out of what is compiled.

    Attributes:
        forwarded: For each output the position of the input (constants and then leaves) that it is, or None.
        used: The positions of the inputs that the compiled part needs.
        run: The compiled part, of the arrays of `owned` and the used inputs, or None where nothing is left to compute.
        owned: The large constants that the program brings along.
        tree: The tree of the outputs, or None where they are a list.
        is_plain: Whether all inputs are used, and all outputs computed.
        is_single: Whether the compiled part gives its only output by itself, which takes less time than a list.
    """

    forwarded: tuple[int | None, ...]
    used: tuple[int, ...]
    run: Callable[..., Any] | None
    owned: tuple[Array, ...] = ()
    tree: PyTreeDef | None = None
    is_plain: bool = False
    is_single: bool = False

    @property
    def n_bytes(self) -> int:
        """The size of the arrays that the program holds."""
        return sum(const.nbytes for const in self.owned)

    def __call__(self, consts: Sequence[Any], leaves: Sequence[Any]) -> Any:
        """Computes the outputs."""
        if self.is_plain and self.run is not None:
            computed = self.run(*self.owned, *consts, *leaves)
            outputs = [computed] if self.is_single else computed
        else:
            outputs = self._flat((*consts, *leaves))
        return outputs if self.tree is None else self.tree.unflatten(outputs)

    def _flat(self, inputs: Sequence[Any]) -> list[Array]:
        if self.run is None:
            return [_as_array(inputs[i]) for i in self.forwarded if i is not None]
        computed = self.run(*self.owned, *[inputs[i] for i in self.used])
        if self.is_single:
            computed = [computed]
        if len(computed) == len(self.forwarded):
            return computed
        remaining = iter(computed)
        return [next(remaining) if i is None else _as_array(inputs[i]) for i in self.forwarded]


def build_program(
    engine: Callable[[Sequence[Any], Sequence[Any]], Any],
    consts: Sequence[Any],
    leaves: Sequence[Any],
    *,
    name: str = "symjac",
    forward: bool = True,
    donated: Sequence[bool] = (),
) -> Program:
    """Traces an engine, and prepares the compilation of what has to be computed. The first call compiles it.

    Args:
        engine: Computes a tree of outputs from constants and leaves.
        consts: Constants; only their types count.
        leaves: Leaves; only their types count.
        name: The name of the compiled function.
        forward: Whether an output that is an input is returned as it is.
        donated: For each leaf, whether its memory may be used again.
    """
    traced, shapes = jax.make_jaxpr(engine, return_shape=True)(list(consts), list(leaves))
    tree = tree_util.tree_structure(shapes)
    if tree == tree_util.tree_structure([0] * tree.num_leaves):
        tree = None
    jaxpr, own = _compat.opened(traced)
    position = {var: i for i, var in enumerate(jaxpr.invars[len(own) :])}
    forwarded = tuple(None if isinstance(out, Literal) else position.get(out) for out in jaxpr.outvars)
    if traced.effects or not forward:
        forwarded = (None,) * len(forwarded)
    elif None not in forwarded:
        return Program(forwarded, (), None, tree=tree)
    keep = [False] * (len(own) + len(consts)) + (list(donated) or [False] * len(leaves))
    jaxpr, kept = _compat.without_dead_code(jaxpr, keep, [i is None for i in forwarded])
    own = [const for const, keep in zip(own, kept, strict=False) if keep]
    used = tuple(i for i, keep in enumerate(kept[len(kept) - len(position) :]) if keep)
    is_large = [const.nbytes > _MAX_EMBEDDED_BYTES for const in own]
    owned = tuple(_as_array(const) for const, large in zip(own, is_large, strict=True) if large)
    embedded = [None if large else const for const, large in zip(own, is_large, strict=True)]

    is_single = len(jaxpr.outvars) == 1

    def run(*args: Any) -> Any:
        large = iter(args[: len(owned)])
        consts = [next(large) if const is None else const for const in embedded]
        outputs = eval_jaxpr(jaxpr, (), *consts, *args[len(owned) :])
        return outputs[0] if is_single else outputs

    run.__name__ = run.__qualname__ = name
    first = len(consts)
    given_up = tuple(len(owned) + j for j, i in enumerate(used) if i >= first and donated and donated[i - first])
    is_plain = used == tuple(range(len(position))) and all(i is None for i in forwarded)
    return Program(forwarded, used, jax.jit(run, donate_argnums=given_up), owned, tree, is_plain, is_single)


def _as_array(value: Any) -> Array:
    if type(value) is _compat.ArrayImpl or isinstance(value, Array):
        return value
    if isinstance(value, bool | int | float | complex):
        return jnp.asarray(value)
    return jax.device_put(np.asarray(value))  # Other than `jnp.asarray` this compiles nothing.
