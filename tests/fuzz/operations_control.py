# ruff: noqa: E501
"""Functions inside of functions: calls, loops, branches, and derivatives."""

from __future__ import annotations

from collections.abc import Callable

from .builder import Builder, Skip, operation
from .operations_layout import with_axes


def like(shape: tuple[int, ...]) -> Callable[[Builder], str]:
    """Picks a result of a given shape: a value that has it, or one that is made to fit."""

    def result(b: Builder) -> str:
        own = [n for n, v in b.values.items() if v.dtype == b.dtype and tuple(v.shape) == shape]
        if own and b.chance(0.8):
            return own[-1]
        scalar = [n for n, v in b.values.items() if v.dtype == b.dtype]
        return f"jnp.broadcast_to(jnp.sum({b.one_of(scalar)}), {shape})"

    return result


def last(b: Builder) -> str:
    """Picks the last value."""
    own = [n for n, v in b.values.items() if v.dtype == b.dtype]
    return b.one_of(own[-2:])


def two_results(b: Builder) -> str:
    """Picks two values."""
    return f"({last(b)}, {last(b)})"


CALLS = (
    "jax.jit({0})({1})",
    "jax.checkpoint({0})({1})",
    "jax.named_call({0}, name='inner')({1})",
    "{0}({1})",
    "jax.jvp({0}, ({1},), ({1},))[1]",
    "jax.jit(jax.checkpoint({0}))({1})",
    "jax.jit({0}, inline=True)({1})",
)


@operation(1.5, holomorphic=True, nested=True)
def call(b: Builder) -> str:
    x = b.pick()
    name = b.block([(b.axes(x), b.dtype)], last)
    return b.one_of(CALLS).format(name, x)


@operation(0.5, holomorphic=True, nested=True)
def call_twice(b: Builder) -> str:
    x = b.pick()
    name = b.block([(b.axes(x), b.dtype)], like(b.axes(x)))
    return f"jax.jit({name})(jax.jit({name})({x}))"


@operation(0.5, holomorphic=True, nested=True)
def call_pair(b: Builder) -> str:
    x, y = b.pick(), b.pick()
    name = b.block([(b.axes(x), b.dtype), (b.axes(y), b.dtype)], two_results)
    return f"jnp.sum(jax.jit({name})({x}, {y})[0]) + jax.jit({name})({x}, {y})[1]"


@operation(0.8, holomorphic=True, nested=True)
def vmapped(b: Builder) -> str:
    x = with_axes(b)
    name = b.block([(b.axes(x)[1:], b.dtype)], last)
    return f"jax.vmap({name})({x})"


@operation(0.4, nested=True)
def gradient(b: Builder) -> str:
    x = b.pick()
    name = b.block([(b.axes(x), b.dtype)], lambda inner: f"jnp.sum({last(inner)})")
    return f"jax.grad({name})({x})"


@operation(1.0, nested=True)
def cond(b: Builder) -> str:
    x = b.pick()
    n = b.integer(2, 3)
    names = [b.block([(b.axes(x), b.dtype)], like(b.axes(x))) for _ in range(n)]
    predicate = f"jnp.sum({b.pick()}) > 0"
    if n == 2:
        return f"lax.cond({predicate}, {names[0]}, {names[1]}, {x})"
    return f"lax.switch(jnp.sum({b.pick()} > 0) % 3, [{', '.join(names)}], {x})"


@operation(1.2, holomorphic=True, nested=True)
def scan(b: Builder) -> str:
    x, y = b.pick(), with_axes(b)
    shape = b.axes(x)
    name = b.block([(shape, b.dtype), (b.axes(y)[1:], b.dtype)], lambda i: f"({like(shape)(i)}, {last(i)})")
    pick = b.integer(0, 1)
    extra = b.one_of(("", "", ", reverse=True", ", unroll=2"))
    return f"lax.scan({name}, {x}, {y}{extra})[{pick}]"


@operation(0.5, holomorphic=True, nested=True)
def fori(b: Builder) -> str:
    x = b.pick()
    shape = b.axes(x)
    name = b.block([((), "int32"), (shape, b.dtype)], like(shape))
    return f"lax.fori_loop(0, {b.integer(0, 3)}, {name}, {x})"


@operation(0.6, holomorphic=True, forward_only=True, nested=True)
def while_loop(b: Builder) -> str:
    x = b.pick()
    shape = b.axes(x)
    name = b.block([(shape, b.dtype)], like(shape))
    bound = b.integer(0, 3)
    return f"lax.while_loop(lambda s: s[0] < {bound}, lambda s: (s[0] + 1, {name}(s[1])), (0, {x}))[1]"


@operation(0.3, holomorphic=True, nested=True)
def mapped(b: Builder) -> str:
    x = with_axes(b)
    name = b.block([(b.axes(x)[1:], b.dtype)], last)
    return f"lax.map({name}, {x})"


CUSTOM = (
    "(lambda g: (g.defjvp(lambda p, t: (g(*p), t[0] * 0.5)), g({1}))[1])(jax.custom_jvp(lambda u: jnp.round(u)))",
    "(lambda g: (g.defjvp(lambda p, t: (g(*p), jnp.sin(p[0]) * t[0] + t[0])), g({1}))[1])(jax.custom_jvp(lambda u: u ** 2))",
    "(lambda g: (g.defjvp(lambda p, t: (jax.jvp({0}, p, t)[0], jax.jvp({0}, p, t)[1] * 2)), g({1}))[1])(jax.custom_jvp({0}))",
)


@operation(0.7, nested=True)
def custom_jvp(b: Builder) -> str:
    x = b.pick()
    name = b.block([(b.axes(x), b.dtype)], last)
    if b.blocks[-1].free_names():  # What a function with a rule of its own is closed over has no derivative.
        raise Skip
    return b.one_of(CUSTOM).format(name, x)


@operation(0.3, nested=True)
def associative(b: Builder) -> str:
    x = with_axes(b)
    return f"lax.associative_scan({b.one_of(('jnp.multiply', 'jnp.add', 'jnp.maximum'))}, {x})"


@operation(0.2, nested=True)
def linear_solve(b: Builder) -> str:
    x = b.pick(lambda v: v.ndim == 1 and v.shape[0])
    n = b.axes(x)[0]
    matrix = f"(4 * jnp.eye({n}, dtype='{b.dtype}') + {b.const((n, n))})"
    return f"lax.custom_linear_solve(lambda u: {matrix} @ u, {x}, lambda mv, r: jnp.linalg.solve({matrix}, r), lambda vm, r: jnp.linalg.solve({matrix}.T, r))"
