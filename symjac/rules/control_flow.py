"""Calls are entered; loops and branches."""

from __future__ import annotations

from typing import Any

from jax.extend.core import Primitive

from symjac import _compat
from symjac._interpreter import interpret, register


def defcall(primitive: Primitive) -> None:
    """Registers a primitive that only calls a jaxpr: the interpreter enters it."""

    def rule(*operands: Any, **params: Any) -> list[Any]:
        jaxpr, consts = _compat.called_jaxpr(params)
        return interpret(jaxpr, [*consts, *operands])

    rule.__name__ = f"_{primitive.name}_rule"
    rule.__doc__ = f"`{primitive.name}`: interprets the jaxpr inside. Keeps every structure."
    register(primitive)(rule)


for _primitive in _compat.call_primitives:
    defcall(_primitive)
