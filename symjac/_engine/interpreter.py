"""The rule table and the interpreter that pushes structured tangents through a linear program.

An equation without a tangent operand is evaluated; one with a tangent operand is given to the rule of its primitive. A
rule returns a tangent (a list of results where the primitive has several), or NotImplemented to decline; then the
tangents of that one equation are made dense and the primitive is mapped over the basis, as `jax.jacfwd` always does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal, Primitive

from symjac import _compat
from symjac._algebra.describe import describe
from symjac._algebra.materialise import materialise as _materialise
from symjac._algebra.merge import compact, lying, settle
from symjac._algebra.record import is_recording, recorded, result_scope, values_scope
from symjac._algebra.tangent import StructuredTangent, identity, zero
from symjac._engine.dense import map_over_basis, map_program
from symjac._engine.linearity import is_linear_equation
from symjac._engine.mixing import kind_of, mixing_equations
from symjac._engine.program import LinearProgram
from symjac._engine.sharing import sharing
from symjac._engine.static import evaluate
from symjac._types import aval_of

Rule = Callable[..., Any]

_logger = logging.getLogger("symjac")
_rules: dict[Primitive, Rule] = {}
_elementwise: set[Primitive] = set()
_said: set[str] = set()
_strict: ContextVar[bool] = ContextVar("strict", default=False)


class StructureLostError(RuntimeError):
    """Raised in strict mode where an equation has no structural rule, or its rule declined."""


def register(primitive: Primitive, *, elementwise: bool = False) -> Callable[[Rule], Rule]:
    """Registers the rule of a primitive.

    The rule takes the equation's operands by position (a `StructuredTangent` where an operand carries one, else an
    array) and its parameters by name. It returns the tangent of the result (a list where the primitive has several
    results), or NotImplemented to decline.

    Args:
        primitive: The primitive.
        elementwise: Whether the rule only appends factors over the out labels, so that several uses of a tangent in
            such equations merge again.

    Raises:
        ValueError: where the primitive has a rule already.
    """

    def add(rule: Rule) -> Rule:
        if primitive in _rules:
            raise ValueError(f"{primitive} already has a rule: {_rules[primitive].__name__}.")
        _rules[primitive] = rule
        if elementwise:
            _elementwise.add(primitive)
        return rule

    return add


def registered() -> dict[Primitive, Rule]:
    """A copy of the rule table."""
    return dict(_rules)


@contextlib.contextmanager
def strict(enabled: bool = True) -> Iterator[None]:
    """Within this context a fallback raises `StructureLostError` instead of being done densely.

    Examples:
        >>> import jax.numpy as jnp, symjac
        >>> with symjac.strict():
        ...     symjac.jacfwd(jnp.sin)(jnp.zeros(2))
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    token = _strict.set(enabled)
    try:
        yield
    finally:
        _strict.reset(token)


def push_basis(
    program: LinearProgram, consts: Sequence[Any], primals: Sequence[Any], *, transposed: bool = False
) -> tuple[list[Any], list[StructuredTangent]]:
    """Pushes the identity of every tangent input through a linear program.

    Args:
        program: The program.
        consts: Its constants.
        primals: Its primals.
        transposed: Whether the program is one for the transposed Jacobian.

    Returns:
        The values, and for each out tangent its structured Jacobian with respect to all tangent inputs.
    """
    jaxpr, _ = _compat.opened(program.closed)
    n_arrays = len(consts) + program.n_primals
    avals = [aval_of(v) for v in jaxpr.invars[n_arrays:]]
    in_shapes = tuple(tuple(aval.shape) for aval in avals)
    seeds = [identity(i, aval.dtype, in_shapes) for i, aval in enumerate(avals)]
    with engine_settings(), lying(transposed=transposed):
        mutable = next(filter(_compat.makes_references, jaxpr.eqns), None)
        if mutable is not None:
            _lost(mutable, seeds, "mutable arrays")
            outs = map_program(jaxpr, [*consts, *primals], avals, program.n_values)
        else:
            with sharing():
                outs = _interpret(jaxpr, [*consts, *primals, *seeds], is_whole=True)
    values, tangents = outs[: program.n_values], outs[program.n_values :]
    found = jaxpr.outvars[program.n_values :]
    return values, [as_tangent(t, v.aval, in_shapes) for t, v in zip(tangents, found, strict=True)]


def materialise(tangent: StructuredTangent, leaf: int, *, transposed: bool = False) -> Any:
    """`symjac._algebra.materialise.materialise` under the engine's own promotion settings."""
    with engine_settings(), result_scope():
        return _materialise(compact(tangent, leaf), leaf, transposed=transposed)


@contextlib.contextmanager
def engine_settings() -> Iterator[None]:
    """The user's promotion settings are for the user's code, which is traced before the engine runs."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def as_tangent(value: Any, aval: Any, in_shapes: Sequence[tuple[int, ...]]) -> StructuredTangent:
    """A result that does not depend on the tangents is the zero tangent."""
    return value if isinstance(value, StructuredTangent) else zero(aval.shape, aval.dtype, in_shapes)


def interpret(jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
    """Runs a jaxpr without constants on arrays and structured tangents."""
    with sharing():
        return _interpret(jaxpr, args)


def _interpret(jaxpr: Jaxpr, args: Sequence[Any], *, is_whole: bool = False) -> list[Any]:
    """Runs a jaxpr; in a whole one looks for equations that mix values and tangents."""
    env: dict[Any, Any] = dict(zip(jaxpr.invars, args, strict=True))
    spread = _spread_variables(jaxpr, [isinstance(arg, StructuredTangent) for arg in args])
    kinds = [kind_of(arg, isinstance(arg, StructuredTangent)) for arg in args] if is_whole else []
    mixing = mixing_equations(jaxpr, kinds) if is_whole else set()

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else env[atom]

    for i, eqn in enumerate(jaxpr.eqns):
        operands = [read(atom) for atom in eqn.invars]
        if not any(isinstance(x, StructuredTangent) for x in operands):
            with values_scope():
                results = evaluate(eqn, operands)
        elif i in mixing:
            results = _mixed(eqn, operands)
        else:
            results = apply_rule(eqn, operands, [var in spread for var in eqn.outvars])
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _mixed(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of an equation that mixes values and tangents, for each basis vector by itself."""
    if eqn.primitive in _compat.call_primitives:
        jaxpr, consts = _compat.called_jaxpr(eqn.params)
        return _interpret(jaxpr, [*consts, *operands], is_whole=True)
    _lost(eqn, operands, "mixes values and tangents")
    in_shapes = next(x.in_shapes for x in operands if isinstance(x, StructuredTangent))
    return map_over_basis(eqn, operands, in_shapes, False)


def _spread_variables(jaxpr: Jaxpr, tangent: Sequence[bool]) -> set[Any]:
    """The tangents with several uses that may not merge again, given which of the inputs are tangents.

    What is computed elementwise from one tangent alone may merge, as in the derivative of ``x * exp(x)``. A tangent is
    spread where two of those that are computed from it are used otherwise, or one is, several times and not always
    elementwise.
    """
    root = {var: var for var, flag in zip(jaxpr.invars, tangent, strict=True) if flag}
    uses: dict[Any, int] = {}
    leaving: dict[Any, set[Any]] = {}
    spreading: set[Any] = set()

    def use(variables: Sequence[Any], *, merges: bool, spreads: bool) -> None:
        for var in variables:
            uses[var] = uses.get(var, 0) + 1
            if not merges:
                leaving.setdefault(root[var], set()).add(var)
            if spreads:
                spreading.add(var)

    for eqn in jaxpr.eqns:
        tangents = [atom for atom in eqn.invars if not isinstance(atom, Literal) and atom in root]
        roots = {root[var] for var in tangents}
        is_elementwise = eqn.primitive in _elementwise
        merges = is_elementwise and len(roots) == 1
        use(tangents, merges=merges, spreads=not is_elementwise)
        if tangents:
            root.update((var, root[tangents[0]] if merges else var) for var in eqn.outvars)
    results = [atom for atom in jaxpr.outvars if not isinstance(atom, Literal) and atom in root]
    use(results, merges=False, spreads=True)
    return {var for var in spreading if uses[var] > 1} | {var for var, found in leaving.items() if len(found) > 1}


def settle_tangent(tangent: StructuredTangent) -> StructuredTangent:
    """Contracts once what several uses share."""
    blocks = tuple(tuple(settle(term, tangent.dtype) for term in block) for block in tangent.blocks)
    return replace(tangent, blocks=blocks)


def apply_rule(eqn: Any, operands: Sequence[Any], shared: Sequence[bool]) -> list[Any]:
    """The results of an equation with tangent operands.

    Args:
        eqn: The equation.
        operands: Its operands.
        shared: For each result, whether it has several uses that may not merge again, so that it is contracted once.
    """
    if not is_recording():
        return _apply_rule(eqn, operands, shared)[0]
    with recorded(eqn) as finish:
        results, fallback = _apply_rule(eqn, operands, shared)
        finish(operands, results, fallback)
    return results


def _apply_rule(eqn: Any, operands: Sequence[Any], shared: Sequence[bool]) -> tuple[list[Any], str]:
    """The results, and why they were computed densely; empty where they were not."""
    rule = _rules.get(eqn.primitive)
    fallback = "no rule"
    results: Any = NotImplemented
    linear = _is_linear(eqn, operands)
    if not linear and eqn.primitive not in _compat.call_primitives:
        fallback = "not linear"
    elif rule is not None:
        arrays = [
            x if isinstance(x, StructuredTangent) or not _is_literal(x) else np.asarray(x).astype(atom.aval.dtype)
            for x, atom in zip(operands, eqn.invars, strict=True)
        ]
        results = rule(*arrays, **eqn.params)
        fallback = "" if results is not NotImplemented else "declined"
    if results is NotImplemented:
        if eqn.primitive.name != "custom_lin":  # Forward mode of a custom_vjp function, which JAX refuses below.
            _lost(eqn, operands, fallback)
        in_shapes = next(x.in_shapes for x in operands if isinstance(x, StructuredTangent))
        results = map_over_basis(eqn, operands, in_shapes, linear)
    elif not eqn.primitive.multiple_results:
        results = [results]
    pairs = zip(results, shared, strict=True)
    return [settle_tangent(x) if flag and isinstance(x, StructuredTangent) else x for x, flag in pairs], fallback


def _is_linear(eqn: Any, operands: Sequence[Any]) -> bool:
    """Whether an equation and its tangents are linear in the tangents of the program."""
    own = [isinstance(x, StructuredTangent) for x in operands]
    if not all(x.is_linear for x in operands if isinstance(x, StructuredTangent)):
        return False
    return eqn.primitive in _compat.call_primitives or is_linear_equation(eqn, own)


def _is_literal(value: Any) -> bool:
    return not isinstance(value, jax.Array) and jnp.ndim(value) == 0


def _lost(eqn: Any, operands: Sequence[Any], fallback: str) -> None:
    """Says that structure is lost: an error in strict mode, else once in the log."""
    structures = ", ".join(describe(x) for x in operands)
    text = f"{eqn.primitive.name} ({fallback}) on {structures}, from {_compat.user_line(eqn)}"
    if _strict.get():
        raise StructureLostError(f"structure is lost at {text}")
    if eqn.primitive.name not in _said:
        _said.add(eqn.primitive.name)
        _logger.info("structure is lost at %s; symjac.explain shows each place", text)
