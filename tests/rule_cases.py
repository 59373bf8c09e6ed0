"""One-line cases for rules: a name, a function and its arguments, checked in both directions at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import RELATIVE_TOLERANCE, assert_close, assert_same

import symjac
from symjac._engine.interpreter import materialise, push_basis
from symjac._engine.program import reverse_program, trace


@dataclass(frozen=True)
class Case:
    """A function and its arguments; it is differentiated with respect to those that are inexact.

    Attributes:
        name: Its name.
        function: The function.
        args: Its arguments, all arrays.
        reverse: Whether its cotangent program is checked too.
        holomorphic: Whether it is a holomorphic function of complex arguments.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    reverse: bool = True
    holomorphic: bool = False

    @property
    def argnums(self) -> tuple[int, ...]:
        """The arguments to differentiate with respect to."""
        return tuple(i for i, x in enumerate(self.args) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.inexact))


def case(name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Case:
    """A case, with its arguments as the last ones."""
    return Case(name, function, args, **options)


def each(cases: list[Case]) -> Any:
    """Runs a test for each case."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name.replace(" ", "_")) for case in cases])


def backwards(case: Case, *args: Any) -> list[list[Any]]:
    """The Jacobian of each output with respect to each argument, by the program of cotangents."""

    def flat(*leaves: Any) -> tuple[list[Any], list[Any]]:
        return jax.tree.leaves(case.function(*leaves)), []

    arrays = [jnp.asarray(x) for x in args]
    traced, closed = trace(flat, arrays, case.argnums)
    program, consts = reverse_program(traced, closed.consts, arrays, False).opened()
    _, tangents = push_basis(program, [], [*consts, *arrays])
    outputs = range(len(tangents[0].in_shapes))
    return [[materialise(t, i, transposed=True) for t in tangents] for i in outputs]


def check(case: Case) -> None:
    """Checks the Jacobian by tangents, and by cotangents, against JAX's. Strict mode makes a fallback an error."""
    options: dict[str, Any] = {"argnums": case.argnums, "holomorphic": case.holomorphic}

    def flat(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(case.function(*leaves))

    def everything(*args: Any) -> Any:
        ours, theirs = symjac.jacfwd(flat, **options)(*args), jax.jacfwd(flat, **options)(*args)
        return ours, theirs, backwards(case, *args) if case.reverse else None

    ours, theirs, back = jax.jit(everything)(*case.args)
    assert_same(ours, theirs, "forward")
    if back is not None:
        for rows, expected in zip(back, theirs, strict=True):
            for i, block, want in zip(case.argnums, rows, expected, strict=True):
                assert block.shape == want.shape and block.dtype == jnp.asarray(case.args[i]).dtype
                coarser = max(RELATIVE_TOLERANCE[str(x.dtype)] for x in (block, want))
                assert_close(block, want.astype(block.dtype), "reverse", coarser)
