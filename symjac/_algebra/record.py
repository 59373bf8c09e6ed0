"""What the interpreter did at each equation, written down where somebody asks for it.

Each recorded equation has a number, and what is computed for it stands in a named scope with that number. So the
program that comes out of the engine says itself which of its operations belong to which equation.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import jax

from symjac import _compat
from symjac._algebra.describe import describe
from symjac._cost import Cost, equation_cost

SCOPE = "symjac_equation_"
RESULT_SCOPE = "symjac_result"
VALUES_SCOPE = "symjac_values"
DIRECTION_SCOPE = "symjac_direction_"
_NOTHING = Cost()

_numbers = itertools.count(1)
_records: ContextVar[list[Record] | None] = ContextVar("records", default=None)
_enclosing: ContextVar[int | None] = ContextVar("enclosing", default=None)
_notes: ContextVar[list[str] | None] = ContextVar("notes", default=None)
_direction: ContextVar[str] = ContextVar("direction", default="")


@dataclass(frozen=True)
class Record:
    """What happened at one equation that met a tangent.

    Attributes:
        primitive: The name of the primitive.
        operands: The structure of each operand; "array" for one without a tangent.
        results: The structure of each result.
        fallback: Empty, or why the equation was done densely: "no rule" or "declined".
        line: The line of the user's code.
        number: Its number, which is in the name of the scope of what was computed for it.
        enclosing: The number of the equation that it is inside of (a call, a loop, a branch), or None.
        notes: What else happened to the structure.
        cost: What the equation itself costs, for one tangent.
        times: How often it is run: the number of steps of the scans around it.
        shapes: The shapes of the results.
        direction: "forward" or "reverse": the mode of the program that it is in.
    """

    primitive: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    fallback: str
    line: str
    number: int = 0
    enclosing: int | None = None
    notes: tuple[str, ...] = ()
    cost: Cost = _NOTHING
    times: int = 1
    shapes: tuple[tuple[int, ...], ...] = ()
    direction: str = ""


@contextlib.contextmanager
def recording() -> Iterator[list[Record]]:
    """Within this context every equation that meets a tangent is recorded, an equation after those inside of it."""
    records: list[Record] = []
    token = _records.set(records)
    try:
        yield records
    finally:
        _records.reset(token)


@contextlib.contextmanager
def recording_apart() -> Iterator[list[Record]]:
    """Within this context records are collected apart, if they are collected at all."""
    if _records.get() is None:
        yield []
        return
    with recording() as records:
        yield records


def is_recording() -> bool:
    """Whether equations are recorded."""
    return _records.get() is not None


def keep_records(records: Sequence[Record], times: int = 1) -> None:
    """Adds records that were collected apart.

    Args:
        records: The records.
        times: How often what they are about is run.
    """
    own = _records.get()
    if own is not None:
        own.extend(replace(record, times=times * record.times) for record in records)


Finish = Callable[[Sequence[Any], Sequence[Any], str], None]


@contextlib.contextmanager
def recorded(eqn: Any) -> Iterator[Finish]:
    """The context of what is computed for an equation; yields what takes its operands, results and fallback at last."""
    number, enclosing, records = next(_numbers), _enclosing.get(), _records.get()
    notes: list[str] = []
    outer_number, outer_notes = _enclosing.set(number), _notes.set(notes)

    def finish(operands: Sequence[Any], results: Sequence[Any], fallback: str) -> None:
        assert records is not None
        records.append(
            Record(
                primitive=eqn.primitive.name,
                operands=tuple(map(describe, operands)),
                results=tuple(map(describe, results)),
                fallback=fallback,
                line=_compat.user_line(eqn),
                number=number,
                enclosing=enclosing,
                notes=tuple(notes),
                cost=equation_cost(eqn),
                shapes=tuple(tuple(getattr(var.aval, "shape", ())) for var in eqn.outvars),
                direction=_direction.get(),
            )
        )

    try:
        with jax.named_scope(f"{SCOPE}{number}"):
            yield finish
    finally:
        _enclosing.reset(outer_number)
        _notes.reset(outer_notes)


@contextlib.contextmanager
def direction_scope(direction: str) -> Iterator[None]:
    """The context of a linear program of a mode.

    Args:
        direction: "forward" or "reverse".
    """
    if not is_recording():
        yield
        return
    token = _direction.set(direction)
    try:
        with jax.named_scope(DIRECTION_SCOPE + direction):
            yield
    finally:
        _direction.reset(token)


def result_scope() -> contextlib.AbstractContextManager[Any]:
    """The context of what makes an array of a tangent at last."""
    return jax.named_scope(RESULT_SCOPE) if is_recording() else contextlib.nullcontext()


def values_scope() -> contextlib.AbstractContextManager[Any]:
    """The context of what is computed for an equation without tangents."""
    return jax.named_scope(VALUES_SCOPE) if is_recording() else contextlib.nullcontext()


def note(text: str) -> None:
    """Writes something down about the equation that is being recorded."""
    notes = _notes.get()
    if notes is not None and text not in notes:
        notes.append(text)
