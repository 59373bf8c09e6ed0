"""A random program: lines of source text, so that a failure prints as a function that anyone can run."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_NAME = re.compile(r"\b[xvp]\d+\b")


@functools.lru_cache(maxsize=4096)
def const(seed: int, shape: tuple[int, ...] = (), dtype: str = "float64") -> np.ndarray:
    """Numbers between -2 and 2 that depend on the seed only."""
    generator = np.random.default_rng(seed)
    values = np.round(generator.uniform(-2, 2, shape), 3)
    if np.issubdtype(jnp.dtype(dtype), np.complexfloating):
        values = values + 1j * np.round(generator.uniform(-2, 2, shape), 3)
    return values.astype(jnp.dtype(dtype))


NAMESPACE: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax, "np": np, "const": const}


@dataclass(frozen=True)
class Input:
    """An input of a program: a name, and the source text of its value."""

    name: str
    text: str

    @property
    def value(self) -> Any:
        """The value."""
        return eval(self.text, NAMESPACE)


@dataclass(frozen=True)
class Block:
    """A function within a program."""

    name: str
    params: tuple[str, ...]
    lines: tuple[Line, ...]
    result: str
    wrapper: str = ""

    def source(self, indent: str) -> str:
        """The definition."""
        head = f"{indent}def {self.name}({', '.join(self.params)}):\n"
        body = "".join(line.source(indent + "    ") for line in self.lines)
        text = f"{head}{body}{indent}    return {self.result}\n"
        return text + (f"{indent}{self.name} = {self.wrapper.format(self.name)}\n" if self.wrapper else "")

    def names(self) -> set[str]:
        """The names that are used inside."""
        return set(_NAME.findall(self.source("")))

    def free_names(self) -> set[str]:
        """The names that are used inside and come from outside."""
        own = {*self.params, *(line.target for line in self.lines)}
        inner = {name for line in self.lines for block in line.blocks for name in (*block.names(), *block.params)}
        inner -= {name for line in self.lines for block in line.blocks for name in block.free_names()}
        return self.names() - own - inner


@dataclass(frozen=True)
class Line:
    """An assignment, with the functions that it calls; `signature` tells results of the same type."""

    target: str
    text: str
    signature: str
    blocks: tuple[Block, ...] = ()

    def source(self, indent: str) -> str:
        """The lines of text."""
        return "".join(block.source(indent) for block in self.blocks) + f"{indent}{self.target} = {self.text}\n"

    def uses(self) -> set[str]:
        """The names of the program that the line reads."""
        return set(_NAME.findall(self.text)).union(*(block.names() for block in self.blocks)) - {self.target}


@dataclass(frozen=True)
class Program:
    """A function of several inputs, and how it is to be differentiated."""

    inputs: tuple[Input, ...]
    lines: tuple[Line, ...]
    result: str
    argnums: int | tuple[int, ...] = 0
    holomorphic: bool = False
    reverse: bool = True
    notes: frozenset[str] = field(default_factory=frozenset)

    def source(self) -> str:
        """The definition of the function `f`."""
        params = ", ".join(entry.name for entry in self.inputs)
        body = "".join(line.source("    ") for line in self.lines)
        return f"def f({params}):\n{body}    return {self.result}\n"

    def script(self) -> str:
        """The function, its arguments, and what `const` means in them."""
        args = "".join(f"    {entry.text},  # {entry.name}\n" for entry in self.inputs)
        return f"{self.source()}\nargs = (\n{args})\nargnums = {self.argnums}\nholomorphic = {self.holomorphic}\n"

    def function(self) -> Callable[..., Any]:
        """The function."""
        scope = dict(NAMESPACE)
        exec(self.source(), scope)
        return scope["f"]

    def arguments(self) -> list[Any]:
        """Its arguments."""
        return [entry.value for entry in self.inputs]

    def pruned(self) -> Program:
        """The program without the lines that nothing needs."""
        needed = set(_NAME.findall(self.result))
        kept: list[Line] = []
        for line in reversed(self.lines):
            if line.target in needed:
                kept.append(line)
                needed |= line.uses()
        return replace(self, lines=tuple(reversed(kept)))

    def variables(self) -> Iterator[str]:
        """The targets of the lines."""
        return (line.target for line in self.lines)
