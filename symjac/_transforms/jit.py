"""A jit that compiles once for all functions of the same structure."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr
from jax.tree_util import tree_flatten, tree_leaves, tree_structure

from symjac import _compat
from symjac._engine.hoist import hoisted
from symjac._memo.calls import NeedsValuesError, are_arrays, are_like, can_remember, placement, run_by_structure
from symjac._memo.code import MEMO_NAME
from symjac._memo.compiled import Program, build_program, run_owned
from symjac._memo.indices import Known, with_known_indices
from symjac._memo.structure import StructuralKey, structural_key

_MAX_SIGNATURES = 256


@dataclass(frozen=True)
class _Compiled:
    """What a signature of a jitted function was compiled to: like JAX, with the constants of the first trace."""

    program: Program
    consts: Sequence[Any]
    finish: Callable[[list[Array]], Any]
    context: Hashable
    epoch: object

    def holds(self) -> bool:
        """Whether nothing that it was compiled under has changed."""
        return self.epoch is _compat.epoch() and self.context == _compat.context()


_Traced = tuple[Callable[[], Program], StructuralKey, Sequence[Any], Callable[[list[Array]], Any]]
"""How to build a program, the key of its structure, its constants, and what makes the user's result."""


class Jitted:
    """What `symjac.jit` returns: `jax.jit` of the same function, where equal programs are compiled once.

    All attributes, `lower`, `trace`, `eval_shape` and so on, are those of what `jax.jit` returns.
    """

    _symjac_jit = True

    def __init__(self, native: Any, fun: Callable[..., Any], donates: bool):
        """Takes what `jax.jit` made of a function, and whether it gives up arguments."""
        functools.update_wrapper(self, native, updated=())
        self.__wrapped__ = fun
        self._native, self._donates = native, donates
        self._compiled: dict[Hashable, _Compiled | None] = {}
        self._last: tuple[tuple[Any, ...], _Compiled | None] = (), None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, compiled."""
        if not kwargs and (compiled := self._repeated(args)) is not None:
            return compiled.finish(compiled.program(compiled.consts, args))
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
        if compiled.holds():
            if not kwargs and len(flat) == len(args) and all(type(arg) is _compat.ArrayImpl for arg in args):
                self._last = key[1:], compiled
            return compiled.finish(compiled.program(compiled.consts, flat))
        return self._first_call(key, flat, args, kwargs)

    def _repeated(self, args: tuple[Any, ...]) -> _Compiled | None:
        """Returns what was compiled for the last call, where this one has arrays of the same types."""
        avals, compiled = self._last
        if compiled is None or not are_like(args, avals) or not compiled.holds():
            return None
        return compiled if can_remember(()) else None

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
        self._last = (), None
        self._native.clear_cache()

    def _first_call(self, key: Hashable, flat: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Traces the function, and runs a program of equal structure, which is compiled where there is none."""
        if len(self._compiled) >= _MAX_SIGNATURES:
            self._compiled.clear()
        for trace in (self._traced_transform, self._traced):
            traced = trace(flat, args, kwargs)
            if traced is not None:
                build, structure, consts, finish = traced
                context, epoch = _compat.context(), _compat.epoch()
                try:
                    run = run_owned(consts, flat, self.__wrapped__, None)
                    program, (consts, outputs) = run_by_structure(structure, build, run)
                except NeedsValuesError:
                    continue
                self._compiled[key] = _Compiled(program, consts, finish, context, epoch)
                return finish(outputs)
        self._compiled[key] = None
        return self._native(*args, **kwargs)

    def _traced_transform(self, flat: list[Any], args: Any, kwargs: Any) -> _Traced | None:
        """Traces the function that the jitted one is a transform of, where symjac did the transform."""
        fun = self.__wrapped__
        holder = vars(fun).get(MEMO_NAME) if isinstance(fun, types.FunctionType) else None
        if holder is None or holder.owner() is not fun or holder.trace is None or self._donates:
            return None
        try:
            traced, leaves = holder.trace(args, kwargs)
        except Exception:  # JAX, which traces it next, has the right words for it.
            return None
        consts = list(traced.closed.consts)
        if len(leaves) != len(flat) or not are_arrays(consts) or traced.closed.effects:
            return None
        structure = structural_key(traced.closed, (traced.static, placement([*consts, *flat])), _compat.context())
        structure, known = with_known_indices(structure, consts)
        build = functools.partial(build_program, traced.engine, consts, flat, known=known)
        return None if structure is None else (build, structure, consts, traced.finish)

    def _traced(self, flat: list[Any], args: Any, kwargs: Any) -> _Traced | None:
        traced = self._native.trace(*args, **kwargs)
        closed = hoisted(traced.jaxpr)
        consts = list(closed.consts)
        donated = tuple(bool(info.donated) for info in tree_leaves(traced.args_info))
        if not are_arrays(consts) or closed.effects or not len(donated) == len(flat) == len(closed.in_avals):
            return None
        structure = structural_key(closed, ("jit", donated, placement([*consts, *flat])), _compat.context())
        structure, known = with_known_indices(structure, consts)
        build = functools.partial(_build, closed, consts, flat, getattr(self, "__name__", "symjac"), donated, known)
        return None if structure is None else (build, structure, consts, tree_structure(traced.out_info).unflatten)


_UNKNOWN = _Compiled(Program((), (), None), (), list, None, None)


def _signature(leaf: Any) -> Hashable:
    """The type of an argument that is no array of JAX's yet."""
    aval = jax.typeof(leaf)
    return (type(leaf), aval.shape, aval.dtype, aval.weak_type) if not isinstance(leaf, Array) else aval


def _build(
    closed: ClosedJaxpr, consts: Sequence[Any], leaves: Sequence[Any], name: str, donated: Sequence[bool], known: Known
) -> Program:
    def engine(consts: Sequence[Any], leaves: Sequence[Any]) -> list[Array]:
        return eval_jaxpr(closed.jaxpr, consts, *leaves)

    return build_program(engine, consts, leaves, name=name, forward=False, donated=donated, known=known)
