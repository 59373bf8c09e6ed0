"""The memo: what was traced and compiled for a function is used again where that is provably right.

A call takes the first of these ways that is open to it:

1. by identity: the same function, called with the same types, reaches the same immutable objects as when it was traced;
2. by structure: it is traced again, and a program that was compiled for an equal jaxpr runs with the fresh constants;
3. it is traced and compiled.

What is remembered by identity is an attribute of the function, so that it goes when the function goes.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jax import Array
from jax.core import Tracer

from symjac import _compat
from symjac._memo.compiled import Program, build_program, owned, run_owned
from symjac._memo.holders import Holder, Plan, Traced, all_holders, holder_of, memo_lock
from symjac._memo.indices import with_known_indices
from symjac._memo.reach import Reach, find_reach
from symjac._memo.structure import StructuralKey, structural_key

_MAX_PROGRAMS = 1024
_MAX_PLANS = 32
_MAX_VARIANTS = 8
"""The programs that are compiled where only numbers in them differ. Further ones run without being compiled."""


Result = TypeVar("Result")


class NeedsValuesError(Exception):
    """A function could not be traced and then differentiated: it needs values, or its results are no arrays."""


class CacheInfo(NamedTuple):
    """What the memo did and holds.

    Attributes:
        hits: The calls that neither traced nor compiled.
        structural_hits: The calls that traced, and found a compiled program.
        misses: The calls that had a program compiled.
        entries: The compiled programs that are held.
        bytes: The size of the arrays that the programs hold.
    """

    hits: int
    structural_hits: int
    misses: int
    entries: int
    bytes: int


_counts = {"hits": 0, "structural_hits": 0, "misses": 0}

MISS = object()
"""Stands for no result."""


class Shortcut:
    """The last plan of a transformed function, for calls with arrays of the very types that it was made for.

    Such calls are spared what a look-up costs, which small functions would feel.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[tuple[Any, ...], Plan, object] | None = None

    def call(self, args: tuple[Any, ...]) -> Any:
        """Calls the function, or returns `MISS` where the call is another."""
        last = self._last
        if last is None:
            return MISS
        avals, plan, cleared = last
        if cleared is not _cleared[0] or not are_like(args, avals) or not can_remember(()):
            return MISS
        consts = _constants(plan)
        if consts is None:
            return MISS
        _counts["hits"] += 1
        return plan.finish(plan.program(consts, args))

    def learn(self, fun: Callable[..., Any], key: Any, args: tuple[Any, ...]) -> None:
        """Remembers the plan of a call of arrays that was just made, if there is one."""
        if key[-1] is not None and all(type(arg) is _compat.ArrayImpl for arg in args):
            holder = holder_of(fun)
            plan = holder.plans.get(key) if holder is not None else None
            if plan is not None:
                self._last = tuple(arg.aval for arg in args), plan, _cleared[0]


def are_like(args: tuple[Any, ...], avals: tuple[Any, ...]) -> bool:
    """Whether arguments are arrays of these types."""
    if len(args) != len(avals):
        return False
    for arg, aval in zip(args, avals):  # noqa: B905
        if type(arg) is not _compat.ArrayImpl or (arg.aval is not aval and arg.aval != aval):
            return False
    return True


_cleared: list[object] = [object()]
"""Another object after each `clear_caches`."""


class _Slot:
    """The place of one compiled program. Its lock is held while the program is built and runs for the first time."""

    __slots__ = ("lock", "program")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.program: Program | None = None


class _Programs:
    """The compiled programs by structure; the least recently used one goes first."""

    def __init__(self) -> None:
        self.slots: OrderedDict[StructuralKey, _Slot] = OrderedDict()
        self.variants: Counter[StructuralKey | None] = Counter()

    def slot(self, key: StructuralKey) -> _Slot:
        """Returns the slot of a key, which may be empty still."""
        with memo_lock:
            slot = self.slots.get(key)
            if slot is None:
                slot = self.slots[key] = _Slot()
                self.variants[key.skeleton] += 1
                while len(self.slots) > _MAX_PROGRAMS:
                    self._forget(self.slots.popitem(last=False)[0])
            else:
                self.slots.move_to_end(key)
            return slot

    def drop(self, key: StructuralKey, slot: _Slot) -> None:
        """Removes an empty slot after a failure."""
        with memo_lock:
            if self.slots.get(key) is slot and slot.program is None:
                del self.slots[key]
                self._forget(key)

    def is_one_of_many(self, key: StructuralKey) -> bool:
        """Whether there is no program of this key, but many that differ from it in numbers only."""
        return self.variants[key.skeleton] >= _MAX_VARIANTS and key not in self.slots

    def clear(self) -> None:
        """Forgets all programs."""
        self.slots.clear()
        self.variants.clear()

    def _forget(self, key: StructuralKey) -> None:
        self.variants[key.skeleton] -= 1
        if self.variants[key.skeleton] <= 0:
            del self.variants[key.skeleton]


_programs = _Programs()


def memoised_call(
    fun: Callable[..., Any],
    key: tuple[Any, ...] | None,
    leaves: Sequence[Array],
    trace: Callable[[], Traced],
    memoize: bool = True,
) -> Any:
    """Computes what `trace` describes, with as much as possible of what an earlier call did.

    Args:
        fun: The user's function.
        key: All that the call depends on beside `fun` and the values of the leaves. It is a tuple that ends in None
            where it cannot be told by a key; such a call is traced.
        leaves: The array leaves of the arguments.
        trace: Traces the call. What it raises is raised.
        memoize: Whether to use anything of an earlier call.

    Returns:
        The user's result.

    Raises:
        NeedsValuesError: A custom rule of the function holds on to a value of the trace that made it, so that what was
            traced cannot be differentiated.
    """
    try:
        return _call(fun, key, leaves, trace, memoize)
    except jax.errors.UnexpectedTracerError as error:
        raise NeedsValuesError from error


def _call(
    fun: Callable[..., Any], key: Any, leaves: Sequence[Array], trace: Callable[[], Traced], memoize: bool
) -> Any:
    if not memoize or not can_remember(leaves):
        traced = trace()
        return traced.finish(_computed(traced, traced.closed.consts, leaves, fun))
    holder = holder_of(fun) if key is not None and key[-1] is not None else None
    plan = None
    if holder is not None:
        try:
            plan = holder.plans.get(key)
        except TypeError:  # Not hashable.
            holder = None
    if holder is not None and plan is not None:
        consts = _constants(plan)
        if consts is not None:
            _counts["hits"] += 1
            return plan.finish(plan.program(consts, leaves))
        holder.plans.pop(key, None)
    return _call_traced(fun, key, leaves, trace, holder)


def can_remember(leaves: Sequence[Any]) -> bool:
    """Whether the call is not a part of a transformation of JAX's."""
    if not _compat.trace_state_clean() or _compat.is_jit_disabled():
        return False
    for leaf in leaves:
        if type(leaf) is not _compat.ArrayImpl and isinstance(leaf, Tracer):
            return False
    return True


def _constants(plan: Plan) -> list[Any] | None:
    """Returns the constants of a plan, or None where the plan does not hold any more."""
    if plan.epoch is not _compat.epoch() or plan.context != _compat.context() or not plan.reach.unchanged():
        return None
    consts: list[Any] = []
    for get in plan.consts:
        const = get()
        if const is None or (type(const) is _compat.ArrayImpl and const.is_deleted()):
            return None
        consts.append(const)
    return consts


def _call_traced(
    fun: Callable[..., Any], key: Any, leaves: Sequence[Array], trace: Callable[[], Traced], holder: Holder | None
) -> Any:
    """Traces, and runs a program of equal structure, which is compiled where there is none."""
    reach = find_reach(fun, key) if holder is not None else None
    epoch = _compat.epoch()
    traced = trace()
    consts = list(traced.closed.consts)
    if reach is not None and not reach.unchanged():
        reach = None  # The function changed what it reaches while it was traced.
    if not are_arrays(consts):
        return traced.finish(_computed(traced, consts, leaves, fun, reach))
    structure = structural_key(traced.closed, (traced.static, placement([*consts, *leaves])), _compat.context())
    structure, known = with_known_indices(structure, consts)
    if (structure is None and reach is None) or (structure is not None and _programs.is_one_of_many(structure)):
        return traced.finish(_computed(traced, consts, leaves, fun, reach))  # It would be compiled again in each call.
    build = functools.partial(build_program, traced.engine, consts, leaves, known=known)
    program, (consts, outputs) = run_by_structure(structure, build, run_owned(consts, leaves, fun, reach))
    if holder is not None and reach is not None:
        getters = tuple(_getter(const, reach) for const in consts)
        plan = Plan(reach, getters, program, traced.finish, _compat.context(), epoch)
        with memo_lock:
            while len(holder.plans) >= _MAX_PLANS:
                del holder.plans[next(iter(holder.plans))]
            holder.plans[key] = plan
    return traced.finish(outputs)


def _computed(
    traced: Traced, consts: Sequence[Any], leaves: Sequence[Any], fun: Callable[..., Any], reach: Reach | None = None
) -> Any:
    """Computes without a compiled program."""
    outputs = traced.engine(consts, leaves)
    return owned(outputs, consts, fun, reach) if can_remember(leaves) else outputs


def run_by_structure(
    structure: StructuralKey | None, build: Callable[[], Program], run: Callable[[Program], Result]
) -> tuple[Program, Result]:
    """Returns the program of a structure, and what running it gave.

    Where there is none it is built. Its first run, which compiles it, is one thread's alone.
    """
    if structure is None:
        _counts["misses"] += 1
        program = build()
        return program, run(program)
    _drop_stale(_compat.epoch())
    slot = _programs.slot(structure)
    program = slot.program
    if program is not None:
        _counts["structural_hits"] += 1
        return program, run(program)
    with slot.lock:
        if slot.program is not None:
            _counts["structural_hits"] += 1
            return slot.program, run(slot.program)
        _counts["misses"] += 1
        try:
            program = build()
            result = run(program)
            slot.program = program
        finally:
            _programs.drop(structure, slot)
        return program, result


_last_epoch: list[object] = [None]


def _drop_stale(epoch: object) -> None:
    """Drops all programs after `jax.clear_caches()`."""
    if _last_epoch[0] is not epoch:
        with memo_lock:
            _programs.clear()
            _last_epoch[0] = epoch


def are_arrays(consts: Sequence[Any]) -> bool:
    """Whether all constants are arrays, and not tracers or mutable references."""
    return all(
        isinstance(const, _compat.array_types) or (isinstance(const, Array) and not isinstance(const, Tracer))
        for const in consts
    )


def placement(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Returns where the arrays are that the user has put somewhere."""
    return tuple(array.sharding if getattr(array, "committed", False) else None for array in arrays)


def _getter(const: Any, reach: Reach) -> Callable[[], Any]:
    """Returns a function that gives a constant: it is held only where the function does not reach it."""
    known = reach.reference_to(const)
    return functools.partial(_identity, const) if known is None else known


def _identity(value: Any) -> Any:
    return value


def cache_info() -> CacheInfo:
    """Returns what the memo did since the last `clear_caches`, and what it holds.

    >>> import symjac
    >>> symjac.clear_caches()
    >>> symjac.cache_info().entries
    0
    """
    with memo_lock:
        programs = [slot.program for slot in _programs.slots.values() if slot.program is not None]
        return CacheInfo(**_counts, entries=len(programs), bytes=sum(program.n_bytes for program in programs))


def clear_caches() -> None:
    """Forgets everything that was traced and compiled."""
    with memo_lock:
        _programs.clear()
        for holder in list(all_holders):
            holder.plans.clear()
        _counts.update(dict.fromkeys(_counts, 0))
        _cleared[0] = object()
