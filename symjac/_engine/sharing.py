"""Equal index arithmetic gives one array, so that terms which take the same entries are seen to share them.

Several equations often compute the same thing from the same indices: each gather normalises negative indices anew.
Index maps are compared by the identity of their arrays, so each value is computed once while a jaxpr is interpreted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from symjac import _compat

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class _Memo:
    """What has been computed under one trace; the operands are kept, so that their identities stay theirs."""

    trace: Any
    found: dict[Hashable, tuple[Sequence[Any], Any]] = field(default_factory=dict)


_memo: ContextVar[_Memo | None] = ContextVar("memo", default=None)


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Within this context, and under the trace that it was entered in, `shared` computes each value once."""
    trace = _compat.current_trace()
    memo = _memo.get()
    if memo is not None and memo.trace is trace:
        yield
        return
    token = _memo.set(_Memo(trace))
    try:
        yield
    finally:
        _memo.reset(token)


def shared(key: Hashable, operands: Sequence[Any], compute: Callable[[], _T]) -> _T:
    """The value of `compute()`, and the same object for the same key and the same operands.

    Args:
        key: What is computed.
        operands: Arrays, compared by identity, or numbers known while tracing.
        compute: Computes it from the operands.
    """
    memo = _memo.get()
    if memo is None or memo.trace is not _compat.current_trace():
        return compute()
    whole = (key, *map(_identity, operands))
    if whole not in memo.found:
        memo.found[whole] = (tuple(operands), compute())
    return memo.found[whole][1]


def _identity(operand: Any) -> Hashable:
    if isinstance(operand, np.ndarray | np.generic | int | float | bool) and np.size(operand) == 1:
        array = np.asarray(operand)
        return (array.shape, array.dtype, array.tobytes())
    return id(operand)
