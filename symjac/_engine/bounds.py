"""Indices out of bounds, where one mode stands in for the other.

What a function reads out of bounds by default is clipped, and so are the tangents that JAX's forward mode reads there;
its reverse mode drops the cotangents. A direction that is taken because it is cheaper keeps the convention of the one
that was asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Literal

from jax.lax import GatherScatterMode

Direction = Literal["forward", "reverse"]

_asked_for: ContextVar[Direction | None] = ContextVar("asked_for", default=None)


@contextlib.contextmanager
def in_place_of(direction: Direction | None) -> Iterator[None]:
    """Within this context a program stands in for that of another direction; with None it stands for itself."""
    token = _asked_for.set(direction)
    try:
        yield
    finally:
        _asked_for.reset(token)


def read_mode(mode: GatherScatterMode | str | None) -> GatherScatterMode:
    """How a tangent is read. Only clipped reads are told of in reverse mode; all others drop what is outside."""
    own = GatherScatterMode.from_any(mode)
    if _asked_for.get() == "reverse" and own != GatherScatterMode.CLIP:
        return GatherScatterMode.FILL_OR_DROP
    return own


def fills_with(fill_value: float | None) -> float | None:
    """What a tangent is filled with that is read outside; None for NaN."""
    return 0 if _asked_for.get() == "reverse" else fill_value


def write_mode(mode: GatherScatterMode | str | None) -> GatherScatterMode:
    """How a tangent is written: what forward mode reads clipped by default, the transposed write drops."""
    own = GatherScatterMode.from_any(mode)
    if _asked_for.get() == "forward" and own == GatherScatterMode.PROMISE_IN_BOUNDS:
        return GatherScatterMode.CLIP
    return own
