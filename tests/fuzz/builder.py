"""Builds a random program while tracing it, so that each line is known to work and its shape is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .program import NAMESPACE, Block, Input, Line, Program

SIZES = (1, 2, 3, 5)
MAX_ELEMENTS = 40
DTYPES = ("float64",) * 8 + ("float32",) * 3 + ("float16", "bfloat16", "complex128", "complex64")


class Skip(Exception):
    """The operation does not fit what there is."""


@dataclass(frozen=True)
class Operation:
    """A way to add a line.

    Attributes:
        function: Writes the text of the line, or raises `Skip`.
        weight: How often it is chosen.
        holomorphic: Whether it may be part of a holomorphic program.
        forward_only: Whether JAX cannot transpose it.
        nested: Whether it writes functions.
    """

    function: Callable[[Builder], str]
    weight: float = 1.0
    holomorphic: bool = False
    forward_only: bool = False
    nested: bool = False


OPERATIONS: list[Operation] = []


def operation(
    weight: float = 1.0, *, holomorphic: bool = False, forward_only: bool = False, nested: bool = False
) -> Callable[[Callable[[Builder], str]], Callable[[Builder], str]]:
    """Registers a way to add a line."""

    def add(function: Callable[[Builder], str]) -> Callable[[Builder], str]:
        OPERATIONS.append(Operation(function, weight, holomorphic, forward_only, nested))
        return function

    return add


class Builder:
    """The values of a program under construction."""

    def __init__(
        self,
        random: Random,
        dtype: str,
        *,
        holomorphic: bool,
        reverse: bool,
        depth: int = 0,
        outer: Builder | None = None,
    ) -> None:
        self.random = random
        self.dtype = dtype
        self.holomorphic = holomorphic
        self.reverse = reverse
        self.depth = depth
        self.outer = outer
        self.root: Builder = self if outer is None else outer.root
        self.values: dict[str, Any] = {}
        self.lines: list[Line] = []
        self.blocks: list[Block] = []
        self.scope: dict[str, Any] = dict(NAMESPACE) if outer is None else dict(outer.scope)
        self.counter = 0

    # -- choices ------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """Whether an event of a probability happens."""
        return self.random.random() < probability

    def one_of(self, values: Sequence[Any]) -> Any:
        """One of some values."""
        if not values:
            raise Skip
        return self.random.choice(values)

    def integer(self, low: int, high: int) -> int:
        """An integer; both ends are possible."""
        if low > high:
            raise Skip
        return self.random.randint(low, high)

    def size(self) -> int:
        """The size of an axis."""
        return 0 if self.chance(0.02) else self.one_of(SIZES)

    def shape(self, rank: int | None = None, elements: int = MAX_ELEMENTS) -> tuple[int, ...]:
        """A shape."""
        rank = self.one_of((0, 1, 1, 2, 2, 2, 3, 3, 4)) if rank is None else rank
        shape = [self.size() for _ in range(rank)]
        while math.prod(shape) > elements:
            shape[shape.index(max(shape))] = 1
        return tuple(shape)

    # -- values -------------------------------------------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        """A new name."""
        self.root.counter += 1
        return f"{prefix}{self.root.counter}"

    def pick(self, accept: Callable[[Any], bool] = lambda value: True) -> str:
        """The name of a value of the program's dtype; later ones are likelier."""
        names = [n for n, v in self.visible().items() if v.dtype == self.dtype and accept(v)]
        if not names:
            raise Skip
        return names[-1 - min(int(self.random.expovariate(0.5)), len(names) - 1)]

    def visible(self) -> dict[str, Any]:
        """The values that a line may use, those of the functions around it first."""
        return self.values if self.outer is None else {**self.outer.visible(), **self.values}

    def aval(self, name: str) -> Any:
        """The value of a name."""
        return self.visible()[name]

    def axes(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(self.aval(name).shape)

    def const(self, shape: Sequence[int], dtype: str | None = None) -> str:
        """The text of a constant."""
        return f"const({self.integer(0, 99)}, {tuple(shape)}, '{dtype or self.dtype}')"

    def operand(self, shape: Sequence[int]) -> str:
        """A value of a shape, or a constant."""
        fitting = [n for n, v in self.visible().items() if v.dtype == self.dtype and tuple(v.shape) == tuple(shape)]
        return self.one_of(fitting) if fitting and self.chance(0.7) else self.const(shape)

    # -- lines --------------------------------------------------------------------------------------------------

    def define(self, text: str) -> str:
        """Adds a line, and gives the name of its value."""
        value = eval(text, self.scope)
        if not hasattr(value, "shape") or math.prod(value.shape) > 4 * MAX_ELEMENTS:
            raise Skip
        if math.prod(value.shape) == 0 and self.chance(0.9):
            raise Skip
        value = jnp.asarray(value) if not isinstance(value, jax.Array) else value
        name = self.fresh("v")
        self.values[name] = self.scope[name] = value
        blocks, self.blocks = tuple(self.blocks), []
        self.lines.append(Line(name, text, str(jax.typeof(value)), blocks))
        return name

    def grow(self, count: int) -> None:
        """Adds some lines."""
        usable = [
            o
            for o in OPERATIONS
            if (o.holomorphic or not self.holomorphic)
            and not (o.forward_only and self.reverse)
            and not (o.nested and self.depth >= 2)
        ]
        weights = [o.weight for o in usable]
        for _ in range(count):
            chosen = self.random.choices(usable, weights)[0]
            self.blocks = []
            try:
                text = chosen.function(self)
                name = self.define(text)
                self._tame(name)
            except (Skip, TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError, AssertionError):
                continue

    def _tame(self, name: str) -> None:
        """Keeps an operation's result in the program's dtype and small, most of the time."""
        value = self.values[name]
        if value.dtype != self.dtype and not self.holomorphic and self.chance(0.8):
            if jnp.issubdtype(value.dtype, jnp.complexfloating) and not jnp.issubdtype(self.dtype, jnp.complexfloating):
                self.define(f"{name}.{self.one_of(('real', 'imag'))}.astype('{self.dtype}')")
            elif value.dtype != bool:
                self.define(f"{name}.astype('{self.dtype}')")

    def block(
        self, shapes: Sequence[tuple[Sequence[int], str]], result: Callable[[Builder], str], count: int = 4
    ) -> str:
        """Writes a function of parameters of given shapes and dtypes; `result` picks what it returns."""
        inner = Builder(
            self.random,
            self.dtype,
            holomorphic=self.holomorphic,
            reverse=self.reverse,
            depth=self.depth + 1,
            outer=self,
        )
        params = [self.fresh("p") for _ in shapes]
        texts: list[str] = []

        def trace(*values: Any) -> Any:
            for param, value in zip(params, values, strict=True):
                inner.values[param] = inner.scope[param] = value
            inner.grow(self.integer(1, count))
            texts.append(result(inner))
            return eval(texts[0], inner.scope)

        jax.eval_shape(trace, *(jax.ShapeDtypeStruct(tuple(s), jnp.dtype(d)) for s, d in shapes))
        block = Block(self.fresh("fun"), tuple(params), tuple(inner.lines), texts[0])
        self.blocks.append(block)
        scope = dict(self.scope)
        exec(block.source(""), scope)
        self.scope[block.name] = scope[block.name]
        return block.name

    def is_output(self, value: Any) -> bool:
        """Whether JAX's transforms take a value as an output."""
        if self.holomorphic:
            return bool(jnp.issubdtype(value.dtype, jnp.complexfloating))
        return bool(jnp.issubdtype(value.dtype, jnp.floating if self.reverse else np.number))


def build(random: Random, max_lines: int = 30) -> Program:
    """A random program."""
    dtype = random.choice(DTYPES)
    holomorphic = dtype.startswith("complex")
    reverse = random.random() < 0.8
    builder = Builder(random, dtype, holomorphic=holomorphic, reverse=reverse)
    n_inputs = random.choice((1, 1, 1, 2, 2, 3))
    inputs = tuple(Input(f"x{i}", _input_text(builder)) for i in range(n_inputs))
    values = [entry.value for entry in inputs]

    def trace(*args: Any) -> Any:
        for entry, arg in zip(inputs, args, strict=True):
            builder.values[entry.name] = builder.scope[entry.name] = arg
        builder.grow(random.randint(1, max_lines))
        return 0

    jax.eval_shape(trace, *values)
    argnums = _argnums(random, n_inputs)
    program = Program(inputs, tuple(builder.lines), _result(builder), argnums, holomorphic, reverse)
    return program.pruned()


def _input_text(builder: Builder) -> str:
    shape = builder.shape(elements=20)
    if not shape and builder.dtype == "float64" and builder.chance(0.2):
        return f"jnp.asarray({round(builder.random.uniform(-2, 2), 3)})"
    return builder.const(shape)


def _argnums(random: Random, n_inputs: int) -> int | tuple[int, ...]:
    if n_inputs == 1 or random.random() < 0.4:
        return random.randrange(n_inputs) if random.random() < 0.9 else (random.randrange(n_inputs),)
    return tuple(random.sample(range(n_inputs), random.randint(1, n_inputs)))


def _result(builder: Builder) -> str:
    names = [n for n, v in builder.values.items() if builder.is_output(v)] or list(builder.values)
    chosen = [names[-1]]
    while builder.chance(0.3) and len(chosen) < 4:
        chosen.append(builder.one_of(names))
    if len(chosen) == 1:
        return chosen[0]
    if builder.chance(0.3):
        return "{" + ", ".join(f"'{chr(97 + i)}': {name}" for i, name in enumerate(chosen)) + "}"
    return "(" + ", ".join(chosen) + ")"
