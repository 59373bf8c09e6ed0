"""A Jacobian that is kept as a linear program, because its terms cost more to find than a product with a vector.

Where tangents meet again and again, as in a deep residual network, the engine contracts as it goes, so that the terms
of the whole are dense and dear. Who asks for products only should not pay for them: the program that `jax.linearize`
gives computes these, and the terms are found when something else is asked for.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr

from symjac import _compat
from symjac._algebra.merge import keeping_entries
from symjac._engine.interpreter import push_basis
from symjac._engine.program import LinearProgram, TracedFunction, is_inexact
from symjac._memo.structure import structural_key
from symjac._result.stored import BATCH_MESSAGE, Layout, Leaf, pack
from symjac._types import aval_of


@dataclass(frozen=True, eq=False)
class LinearForm:
    """A linear program that stands for a Jacobian.

    Attributes:
        program: Its inputs are the arrays and then the tangents of the active inputs, its outputs the tangents of the
            inexact outputs.
        outs: The types of the outputs.
        ins: The types of the inputs.
        active: The numbers of the inputs that have tangents.
        key: Equal for programs that compute the same.
        is_transposed: Whether the Jacobian is the transpose of the one of the program.
    """

    program: ClosedJaxpr
    outs: tuple[Leaf, ...]
    ins: tuple[Leaf, ...]
    active: tuple[int, ...]
    key: Hashable
    is_transposed: bool = False

    def __hash__(self) -> int:
        """A hash of the key."""
        return hash((self.key, self.is_transposed))

    def __eq__(self, other: object) -> bool:
        """Whether the other program computes the same."""
        if not isinstance(other, LinearForm):
            return False
        return self is other or (self.is_transposed == other.is_transposed and self.key == other.key)

    def transposed(self) -> LinearForm:
        """The form of the transposed Jacobian, of the same arrays."""
        return replace(self, is_transposed=not self.is_transposed)

    @property
    def n_arrays(self) -> int:
        """The number of arrays."""
        return len(self.program.jaxpr.invars) - len(self.active)


class Packed(eqx.Module):
    """A Jacobian that can leave a compiled function, but for the trees of its inputs and outputs."""

    arrays: tuple[Any, ...]
    form: Layout | LinearForm = eqx.field(static=True)

    @property
    def layout(self) -> Layout:
        """How terms make the Jacobian."""
        return layout_of(self.form) if isinstance(self.form, LinearForm) else self.form


def defer(
    function: TracedFunction,
    consts: Sequence[Any],
    leaves: Sequence[Any],
    ins: Sequence[Leaf],
    outs: Sequence[Leaf],
    active: Sequence[int],
) -> tuple[list[Any], list[Any], LinearForm, tuple[Any, ...]]:
    """Linearises a traced function.

    Args:
        function: The function.
        consts: The arrays that it closes over.
        leaves: Its arguments.
        ins: The types of the inputs of the Jacobian.
        outs: The types of its outputs.
        active: The numbers of those inputs that the active leaves are.

    Returns:
        The outputs, the auxiliary arrays, the form and its arrays.
    """
    points = [leaves[i] for i in function.active]
    values, pushforward, aux = jax.linearize(function.of_active(consts, leaves), *points, has_aux=True)

    def linear(*tangents: Any) -> list[Any]:
        pairs = zip(pushforward(*tangents), function.output_avals, strict=True)
        return [tangent for tangent, aval in pairs if is_inexact(aval)]

    jaxpr, residuals = _compat.opened(jax.make_jaxpr(linear)(*points))
    jaxpr, used = _compat.without_dead_code(jaxpr, [False] * len(residuals) + [True] * len(points))
    arrays = tuple(array for array, keep in zip(residuals, used, strict=False) if keep)
    program = _compat.closed(jaxpr, ())
    static = (tuple(outs), tuple(ins), tuple(active))
    key = structural_key(program, (len(arrays), repr(static)))
    return values, aux, LinearForm(program, *static, object() if key is None else (key, static)), arrays


def _check(form: LinearForm, arrays: Sequence[Any]) -> None:
    for array, var in zip(arrays, form.program.jaxpr.invars, strict=False):
        shape = tuple(aval_of(var).shape)
        if np.shape(array) != shape:
            raise ValueError(BATCH_MESSAGE.format(np.shape(array), shape))


def push(form: LinearForm, arrays: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
    """The product with one vector for each input; None for an output that is not of an inexact dtype."""
    _check(form, arrays)

    def linear(*tangents: Any) -> list[Any]:
        return eval_jaxpr(form.program.jaxpr, form.program.consts, *arrays, *tangents)

    inexact = [i for i, leaf in enumerate(form.outs) if jnp.issubdtype(leaf.dtype, np.inexact)]
    if not form.is_transposed:
        return _filled(len(form.outs), inexact, linear(*(vectors[j] for j in form.active)))
    tangents = [jax.ShapeDtypeStruct(form.ins[j].shape, form.ins[j].dtype) for j in form.active]
    pulled = jax.linear_transpose(linear, *tangents)([vectors[i] for i in inexact])
    return _filled(len(form.ins), form.active, pulled)


def _filled(count: int, places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    found = dict(zip(places, values, strict=True))
    return [found.get(i) for i in range(count)]


@functools.partial(jax.jit, static_argnums=0, inline=True)
def _expanded(form: LinearForm, arrays: Sequence[Any]) -> Packed:
    _check(form, arrays)
    program = LinearProgram(form.program, len(arrays), 0)
    with keeping_entries():
        _, tangents = push_basis(program, (), arrays)
    remaining = iter(tangents)
    rows = [next(remaining) if jnp.issubdtype(leaf.dtype, np.inexact) else None for leaf in form.outs]
    layout, found = pack(rows, form.outs, form.ins, form.active)
    return Packed(found, layout)


def expand(form: LinearForm, arrays: Sequence[Any]) -> tuple[Layout, tuple[Any, ...]]:
    """The terms."""
    packed = _expanded(replace(form, is_transposed=False), tuple(arrays))
    return packed.layout.transposed() if form.is_transposed else packed.layout, packed.arrays


_layouts: weakref.WeakKeyDictionary[LinearForm, Layout] = weakref.WeakKeyDictionary()


def layout_of(form: LinearForm) -> Layout:
    """The layout of the terms, which are traced once but not computed."""
    found = _layouts.get(form)
    if found is None:
        avals = map(aval_of, form.program.jaxpr.invars[: form.n_arrays])
        arrays = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
        layout = jax.eval_shape(_run(form), arrays).layout
        found = _layouts[form] = layout.transposed() if form.is_transposed else layout
    return found


def _run(form: LinearForm) -> Callable[[Sequence[Any]], Packed]:
    return functools.partial(_expanded, replace(form, is_transposed=False))
