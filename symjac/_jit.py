"""A jit that compiles once for all functions of the same structure."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from jax.extend.core import ClosedJaxpr
from jax.tree_util import PyTreeDef, tree_flatten, tree_leaves, tree_structure, tree_unflatten

from symjac import _compat
from symjac._compiled import Program, build_program
from symjac._hoist import hoisted
from symjac._memo import are_arrays, can_remember, placement, run_by_structure
from symjac._structure import structural_key

_MAX_SIGNATURES = 256


@dataclass(frozen=True)
class _Compiled:
    """What a signature of a jitted function was compiled to: like JAX, with the constants of the first trace."""

    program: Program
    consts: Sequence[Any]
    tree: PyTreeDef
    context: Hashable
    epoch: object


class Jitted:
    """What `symjac.jit` returns: `jax.jit` of the same function, where equal programs are compiled once.

    All attributes, `lower`, `trace`, `eval_shape` and so on, are those of what `jax.jit` returns.
    """

    _symjac_jit = True

    def __init__(self, native: Any, fun: Callable[..., Any]):
        """Takes what `jax.jit` made of a function."""
        functools.update_wrapper(self, fun)
        self._native = native
        self._compiled: dict[Hashable, _Compiled | None] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, compiled."""
        flat, tree = tree_flatten((args, kwargs))
        if not can_remember(flat):
            return self._native(*args, **kwargs)
        try:
            key = (tree, *[leaf.aval if type(leaf) is _compat.ArrayImpl else _signature(leaf) for leaf in flat])
            compiled = self._compiled.get(key, _UNKNOWN)
        except TypeError:  # No argument of a jitted function, or not hashable: JAX has the right words for it.
            return self._native(*args, **kwargs)
        if compiled is None:
            return self._native(*args, **kwargs)
        if compiled.epoch is _compat.epoch() and compiled.context == _compat.context():
            return tree_unflatten(compiled.tree, compiled.program(compiled.consts, flat))
        return self._first_call(key, flat, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Binds as a method, like a function."""
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of what `jax.jit` returned."""
        if name == "_native":  # While it is being copied.
            raise AttributeError(name)
        return getattr(self._native, name)

    def __repr__(self) -> str:
        """Returns what JAX shows."""
        return repr(self._native)

    def clear_cache(self) -> None:
        """Forgets what was traced for this function."""
        self._compiled.clear()
        self._native.clear_cache()

    def _first_call(self, key: Hashable, flat: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Traces the function, and runs a program of equal structure, which is compiled where there is none."""
        context, epoch = _compat.context(), _compat.epoch()
        traced = self._native.trace(*args, **kwargs)
        closed = hoisted(traced.jaxpr)
        consts = list(closed.consts)
        donated = tuple(bool(info.donated) for info in tree_leaves(traced.args_info))
        structure = None
        if are_arrays(consts) and not closed.effects and len(donated) == len(flat) == len(closed.in_avals):
            structure = structural_key(closed, ("jit", donated, placement([*consts, *flat])), context)
        if len(self._compiled) >= _MAX_SIGNATURES:
            self._compiled.clear()
        if structure is None:
            self._compiled[key] = None
            return self._native(*args, **kwargs)
        name = getattr(self, "__name__", "symjac")
        build = functools.partial(_build, closed, consts, flat, name, donated)
        program, outputs = run_by_structure(structure, build, consts, flat)
        tree = tree_structure(traced.out_info)
        self._compiled[key] = _Compiled(program, consts, tree, context, epoch)
        return tree_unflatten(tree, outputs)


_UNKNOWN = _Compiled(Program((), (), None), (), tree_structure(None), None, None)


def _signature(leaf: Any) -> Hashable:
    """The type of an argument that is no array of JAX's yet."""
    aval = jax.typeof(leaf)
    return (type(leaf), aval.shape, aval.dtype, aval.weak_type) if not isinstance(leaf, Array) else aval


def _build(
    closed: ClosedJaxpr, consts: Sequence[Any], leaves: Sequence[Any], name: str, donated: Sequence[bool]
) -> Program:
    def engine(consts: Sequence[Any], leaves: Sequence[Any]) -> list[Array]:
        return jax.core.eval_jaxpr(closed.jaxpr, consts, *leaves)

    return build_program(engine, consts, leaves, name=name, forward=False, donated=donated)
