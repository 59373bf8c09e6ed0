"""What was traced of a call, and what is remembered of one function: how to run its calls again without tracing."""

from __future__ import annotations

import threading
import types
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from jax.extend.core import ClosedJaxpr

from symjac import _compat
from symjac._memo.code import MEMO_NAME
from symjac._memo.compiled import Program
from symjac._memo.reach import Reach


@dataclass(frozen=True)
class Traced:
    """A traced call.

    Attributes:
        closed: The user's program, with closed-over arrays as constants. It holds nothing that is differentiated and
            has a rule of the user's.
        engine: Computes a tree of outputs from the constants and the array leaves; JAX can trace it. What is static
            in the tree is kept with the compiled program.
        finish: Makes the user's result of the outputs. It refers neither to the user's function nor to arrays.
        static: What else `engine` depends on.
    """

    closed: ClosedJaxpr
    engine: Callable[[Sequence[Any], Sequence[Any]], Any]
    finish: Callable[[Any], Any]
    static: Hashable = ()


@dataclass(frozen=True)
class Plan:
    """How to run a call again without tracing. It keeps nothing alive that the function reaches.

    Attributes:
        reach: What the function reached.
        consts: For each constant a function that gives it: a weak reference where the function reaches it.
        program: The compiled program.
        finish: Makes the user's result.
        context: The settings that the call was traced under.
        epoch: Changes with `jax.clear_caches()`.
    """

    reach: Reach
    consts: tuple[Callable[[], Any], ...]
    program: Program
    finish: Callable[[Any], Any]
    context: Hashable
    epoch: object


class Holder:
    """What is remembered of one function; an attribute of it, or, where it can have none, in a table by its id."""

    __slots__ = ("__weakref__", "derived", "owner", "plans", "trace")

    def __init__(self, owner: Any = None):
        """Refers to the owner weakly."""
        self.owner: Callable[[], Any] = weakref.ref(owner) if owner is not None else lambda: None
        self.plans: dict[Hashable, Plan] = {}
        self.derived: dict[Hashable, Any] = {}
        self.trace: Callable[[Any, Any], tuple[Traced, Sequence[Array]]] | None = None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Copies and pickles as an empty one: what is remembered belongs to this function in this process."""
        return Holder, ()


all_holders: weakref.WeakSet[Holder] = weakref.WeakSet()
_by_id: dict[int, Holder] = {}
memo_lock = threading.RLock()


def holder_of(fun: Any) -> Holder | None:
    """Returns what is remembered of a function, or None where it cannot be remembered: bound methods, for example."""
    namespace = getattr(fun, "__dict__", None)
    holder = namespace.get(MEMO_NAME) if type(namespace) is dict else _by_id.get(id(fun))
    if holder is None:
        holder = _by_id.get(id(fun))
    if holder is not None and holder.owner() is fun:
        return holder
    return _new_holder(fun)


def has_attributes(fun: Any) -> bool:
    """Whether what is remembered of a function may be an attribute of it."""
    kinds = types.FunctionType | _compat.PjitFunction | jax.custom_jvp | jax.custom_vjp
    return isinstance(fun, kinds) or getattr(type(fun), "_symjac_jit", False)


def _new_holder(fun: Any) -> Holder | None:
    if isinstance(fun, types.MethodType):
        return None
    with memo_lock:
        try:
            holder = Holder(fun)
            if has_attributes(fun):
                vars(fun)[MEMO_NAME] = holder
            else:
                key = id(fun)
                holder.owner = weakref.ref(fun, lambda _: _by_id.pop(key, None))
                _by_id[key] = holder
        except TypeError:
            return None
        all_holders.add(holder)
        return holder
