"""A compiled program: from constants and leaves to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, tree_util
from jax.core import eval_jaxpr
from jax.extend.core import Literal

from symjac import _compat
from symjac._memo.indices import Known
from symjac._memo.reach import Reach, made_by_trace
from symjac._types import PyTreeDef

_MAX_EMBEDDED_BYTES = 16384
"""Larger constants of a program are arguments: the compiler copies, prints and folds what is embedded."""

_MAX_FIXED_BYTES = 2**26
"""A result that depends on no input, such as the Jacobian of a stencil, is kept up to this size."""


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
        is_fixed: Whether what is computed depends on no input, and computing it again would do nothing else.
        fixed: What the compiled part gave, where that is fixed and not large.
    """

    forwarded: tuple[int | None, ...]
    used: tuple[int, ...]
    run: Callable[..., Any] | None
    owned: tuple[Array, ...] = ()
    tree: PyTreeDef | None = None
    is_plain: bool = False
    is_single: bool = False
    is_fixed: bool = False
    fixed: list[Array] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        """The size of the arrays that the program holds."""
        return sum(array.nbytes for array in (*self.owned, *self.fixed))

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
        computed = self._computed(inputs)
        if len(computed) == len(self.forwarded):
            return computed
        remaining = iter(computed)
        return [next(remaining) if i is None else _as_array(inputs[i]) for i in self.forwarded]

    def _computed(self, inputs: Sequence[Any]) -> list[Array]:
        if self.fixed and not any(array.is_deleted() for array in self.fixed):
            return list(self.fixed)
        assert self.run is not None
        computed = self.run(*self.owned, *[inputs[i] for i in self.used])
        computed = [computed] if self.is_single else computed
        if self.is_fixed and sum(array.nbytes for array in computed) <= _MAX_FIXED_BYTES:
            self.fixed[:] = computed
        return computed


def owned(outputs: Any, consts: Sequence[Any], fun: Any, reach: Reach | None) -> Any:
    """Returns a tree of outputs, arrays of JAX, where each that is a constant of the trace's own making is copied.

    The function may have made it of a numpy array, and share the memory of that.
    """
    given = {id(output) for output in tree_util.tree_leaves(outputs)}
    made = made_by_trace([const for const in consts if id(const) in given], fun, reach)
    return tree_util.tree_map(lambda output: jnp.copy(output) if id(output) in made else _as_array(output), outputs)


def run_owned(
    consts: Sequence[Any], leaves: Sequence[Any], fun: Any, reach: Reach | None
) -> Callable[[Program], tuple[Sequence[Any], Any]]:
    """Returns what runs a program, and gives the constants that it ran with and the outputs.

    The constants hold a copy of each that the program gives back and that is of the trace's own making.
    """

    def run(program: Program) -> tuple[Sequence[Any], Any]:
        given = [consts[i] for i in program.forwarded if i is not None and i < len(consts)]
        made = made_by_trace(given, fun, reach)
        own = [jnp.copy(const) if id(const) in made else const for const in consts] if made else consts
        return own, program(own, leaves)

    return run


def build_program(
    engine: Callable[[Sequence[Any], Sequence[Any]], Any],
    consts: Sequence[Any],
    leaves: Sequence[Any],
    *,
    name: str = "symjac",
    forward: bool = True,
    donated: Sequence[bool] = (),
    known: Known = (),
) -> Program:
    """Traces an engine, and prepares the compilation of what has to be computed. The first call compiles it.

    Args:
        engine: Computes a tree of outputs from constants and leaves.
        consts: Constants; only their types count.
        leaves: Leaves; only their types count.
        name: The name of the compiled function.
        forward: Whether an output that is an input is returned as it is.
        donated: For each leaf, whether its memory may be used again.
        known: The values of some constants, which the program takes as its own.
    """

    def knowing(consts: Sequence[Any], leaves: Sequence[Any]) -> Any:
        pairs = zip(consts, known or [None] * len(consts), strict=True)
        return engine([const if value is None else value for const, value in pairs], leaves)

    traced, shapes = jax.make_jaxpr(knowing, return_shape=True)(list(consts), list(leaves))
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
    compiled = jax.jit(run, donate_argnums=given_up)
    is_plain = bool(used) and used == tuple(range(len(position))) and all(i is None for i in forwarded)
    is_fixed = forward and not used and not traced.effects
    return Program(forwarded, used, compiled, owned, tree, is_plain, is_single, is_fixed)


def _as_array(value: Any) -> Array:
    """A value that is handed out. The memory of a numpy array is its owner's, who may write to it: it is copied."""
    if type(value) is _compat.ArrayImpl or isinstance(value, Array):
        if value.is_deleted():
            raise RuntimeError(f"Array has been deleted with shape={jax.typeof(value).str_short()}.")
        return value
    if isinstance(value, bool | int | float | complex):
        return jnp.asarray(value)
    return jax.device_put(np.array(value))  # Other than `jnp.asarray` this compiles nothing.
