"""Which equations add values and tangents, or write one into the other.

The program of a derivative is linear in its tangents, so what it adds to a tangent that is none is zero: JAX makes
zeros where it has no tangent. But a derivative rule of the user's may keep values and tangents in one array, as one
that solves an ODE for both does. Then the rules for linear functions, which take all else for zero, do not hold.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import dtypes, lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from symjac import _compat
from symjac._engine.dependence import dependent_outputs, settled


class Kind(enum.IntEnum):
    """What a variable holds."""

    ZERO = 0
    VALUE = 1
    TANGENT = 2


_EVERY = slice(None)
# The operands that an equation adds, joins or writes into each other.
_JOINED: dict[Any, Any] = {
    **dict.fromkeys((lax.add_p, _compat.add_any_p, lax.sub_p, lax.concatenate_p, lax.complex_p), _EVERY),
    lax.pad_p: _EVERY,
    lax.select_n_p: slice(1, None),
    lax.dynamic_update_slice_p: slice(0, 2),
    **dict.fromkeys((lax.scatter_p, lax.scatter_add_p), slice(0, None, 2)),
    **({_compat.stack_p: _EVERY} if _compat.stack_p is not None else {}),
}
_PRODUCTS = {lax.mul_p, lax.dot_general_p, lax.conv_general_dilated_p}
_KEEPS_ZERO = {
    *(lax.broadcast_in_dim_p, lax.reshape_p, lax.squeeze_p, lax.transpose_p, lax.slice_p, lax.dynamic_slice_p),
    *(lax.gather_p, lax.convert_element_type_p, lax.reduce_sum_p, lax.reduce_max_p, lax.reduce_min_p, lax.cumsum_p),
    *(
        lax.copy_p,
        lax.real_p,
        lax.imag_p,
        lax.conj_p,
        lax.neg_p,
        lax.rev_p,
        lax.div_p,
        lax.abs_p,
        lax.sign_p,
        lax.fft_p,
    ),
    *(lax.reduce_window_sum_p, lax.reduce_precision_p, lax.split_p, _compat.device_put_p, _compat.name_p),
    *(_compat.sharding_constraint_p, lax.optimization_barrier_p, lax.fft_p),
}
_MOST_LOOKED_AT = 2**16


def kind_of(value: Any, is_tangent: bool) -> Kind:
    """What an input holds."""
    if is_tangent:
        return Kind.TANGENT
    is_known = isinstance(value, np.ndarray | _compat.ArrayImpl) and value.size <= _MOST_LOOKED_AT
    is_known = is_known and getattr(value, "is_fully_addressable", True) and jnp.issubdtype(value.dtype, np.number)
    return Kind.ZERO if is_known and _is_zero(np.asarray(value)) else Kind.VALUE


def mixing_equations(jaxpr: Jaxpr, kinds: Sequence[Kind]) -> set[int]:
    """Returns the numbers of the equations of an opened jaxpr that mix values and tangents, or call what does."""
    mixing: set[int] = set()
    _flow(jaxpr, kinds, mixing)
    return mixing


def _flow(jaxpr: Jaxpr, kinds: Sequence[Kind], mixing: set[int]) -> list[Kind]:
    """What the outputs of an opened jaxpr hold; adds the numbers of the equations that mix."""
    env = dict(zip(jaxpr.invars, kinds, strict=True))

    def read(atom: Any) -> Kind:
        return _literal(atom) if isinstance(atom, Literal) else env[atom]

    for i, eqn in enumerate(jaxpr.eqns):
        found, mixes = _through(eqn, list(map(read, eqn.invars)))
        env.update(zip(eqn.outvars, found, strict=True))
        if mixes:
            mixing.add(i)
    return list(map(read, jaxpr.outvars))


def _literal(atom: Literal) -> Kind:
    return Kind.ZERO if _is_zero(np.asarray(atom.val)) else Kind.VALUE


def _is_zero(array: np.ndarray) -> bool:
    """Whether an array is zero, or the NaN that stands for no result."""
    return array.dtype == dtypes.float0 or bool(np.all((array == 0) | (array != array)))


def _through(eqn: Any, kinds: list[Kind]) -> tuple[list[Kind], bool]:
    """What the results of an equation hold, and whether it mixes."""
    primitive = eqn.primitive
    inner = _through_inner(eqn, kinds)
    if inner is not None:
        return inner
    if primitive in _JOINED:
        joined = kinds[_JOINED[primitive]]
        if Kind.TANGENT in kinds:
            return [Kind.TANGENT], Kind.TANGENT in joined and Kind.VALUE in joined
        return [max(joined)], False
    if Kind.TANGENT in kinds:
        if primitive is lax.optimization_barrier_p:
            return kinds, False
        if primitive is lax.scatter_mul_p:  # It multiplies, but leaves what no index leads to.
            return [Kind.TANGENT], kinds[2] == Kind.TANGENT and kinds[0] == Kind.VALUE
        flags = dependent_outputs(eqn, [kind == Kind.TANGENT for kind in kinds])
        return [Kind.TANGENT if flag else Kind.VALUE for flag in flags], False
    is_zero = Kind.ZERO in kinds if primitive in _PRODUCTS else primitive in _KEEPS_ZERO and kinds[:1] == [Kind.ZERO]
    return [Kind.ZERO if is_zero else Kind.VALUE] * len(eqn.outvars), False


def _through_inner(eqn: Any, kinds: list[Kind]) -> tuple[list[Kind], bool] | None:
    primitive, params = eqn.primitive, eqn.params
    mixing: set[int] = set()
    if primitive in _compat.call_primitives:
        jaxpr, consts = _compat.called_jaxpr(params)
        found = _flow(jaxpr, [*(kind_of(const, False) for const in consts), *kinds], mixing)
        return found, bool(mixing)
    if primitive is lax.cond_p:
        outs = [_closed(branch, kinds[1:], mixing) for branch in params["branches"]]
        columns = list(zip(*outs, strict=True))
        mixes = any(Kind.TANGENT in column and Kind.VALUE in column for column in columns)
        return [max(column) for column in columns], mixes or bool(mixing)
    if primitive is lax.scan_p:
        n_consts, n_carry = _compat.scan_sizes(params)
        return _through_loop(params["jaxpr"], kinds[:n_consts], kinds[n_consts:], n_carry)
    if primitive is lax.while_p:
        first = params["cond_nconsts"]
        n_consts = params["body_nconsts"]
        carry = kinds[first + n_consts :]
        return _through_loop(params["body_jaxpr"], kinds[first : first + n_consts], carry, len(carry))
    return None


def _closed(closed: Any, kinds: Sequence[Kind], mixing: set[int]) -> list[Kind]:
    jaxpr, consts = _compat.opened(closed) if isinstance(closed, ClosedJaxpr) else (closed, [])
    return _flow(jaxpr, [*(kind_of(const, False) for const in consts), *kinds], mixing)


def _through_loop(body: Any, consts: list[Kind], rest: list[Kind], n_carry: int) -> tuple[list[Kind], bool]:
    """The results of a loop: what is carried holds what comes in or what comes out of a step."""
    xs, mixing, joins = rest[n_carry:], set(), False

    def step(carry: list[Kind]) -> list[Kind]:
        nonlocal joins
        mixing.clear()
        found = _closed(body, [*consts, *carry, *xs], mixing)
        joins = joins or any({Kind.VALUE, Kind.TANGENT} == set(pair) for pair in zip(carry, found, strict=False))
        return found

    carry, found = settled(step, rest[:n_carry])
    return [*carry, *found[n_carry:]], joins or bool(mixing)
