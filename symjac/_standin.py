"""Stands in for the memo until it is here."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from jax import Array
from jax.extend.core import ClosedJaxpr


@dataclass(frozen=True)
class Traced:
    """A traced call."""

    closed: ClosedJaxpr
    engine: Callable[[Sequence[Array], Sequence[Array]], list[Array]]
    finish: Callable[[Sequence[Array]], Any]
    static: Hashable = ()


def memoised_call(
    fun: Any, key: Hashable, leaves: Sequence[Array], trace: Callable[[], Traced], memoize: bool = True
) -> Any:
    """Computes inline."""
    traced = trace()
    return traced.finish(traced.engine(traced.closed.consts, leaves))
