"""Elementwise operations, and those that combine two values."""

from __future__ import annotations

from .builder import Builder, operation

SMOOTH = (
    "jnp.sin({0})",
    "jnp.cos({0})",
    "jnp.tanh({0})",
    "jnp.exp(-({0} * {0}))",
    "{0} ** 2",
    "0.5 * {0} ** 3",
    "1.0 / (2.5 + jnp.sin({0}))",
    "-{0}",
    "{0} * 0.5",
    "2 * {0}",
    "{0} - 1.5",
    "{0} / 3",
    "jnp.square({0})",
    "jnp.positive({0})",
    "jnp.array({0}, copy=True)",
    "lax.optimization_barrier({0})",
    "lax.stop_gradient({0})",
)
REAL = (
    "jnp.arctan({0})",
    "jax.nn.sigmoid({0})",
    "jax.nn.softplus({0})",
    "jax.nn.gelu({0})",
    "jax.nn.silu({0})",
    "jax.nn.relu({0})",
    "jax.nn.elu({0})",
    "jax.nn.leaky_relu({0})",
    "jax.nn.relu6({0})",
    "jnp.abs({0})",
    "jnp.log1p({0} * {0})",
    "jnp.sqrt({0} * {0} + 1.0)",
    "lax.rsqrt(1.0 + {0} * {0})",
    "lax.erf({0})",
    "lax.erf_inv(0.5 * jnp.tanh({0}))",
    "jnp.sign({0}) * {0}",
    "jnp.floor({0}) + {0}",
    "jnp.expm1(jnp.tanh({0}))",
    "jnp.cbrt(1.0 + {0} ** 2)",
    "jnp.sinh(jnp.sin({0}))",
    "jnp.arcsinh({0})",
    "jnp.tan(0.3 * jnp.tanh({0}))",
    "lax.lgamma(1.0 + {0} ** 2)",
    "lax.digamma(1.0 + {0} ** 2)",
    "lax.integer_pow({0}, 3)",
    "lax.integer_pow(1.5 + jnp.cos({0}), -2)",
    "lax.reduce_precision({0}, 8, 23)",
    "jnp.clip({0}, -0.5, 1.0)",
    "jnp.clip({0}, jnp.sin({0}), 1.5)",
    "jnp.nan_to_num({0})",
    "jnp.where({0} > 0, jnp.sqrt({0}), 0.0)",
    "jnp.where({0} > 0, jnp.log({0}), {0})",
    "jnp.where({0} != 0, 1 / {0}, 0.0)",
    "jnp.where({0} > 0, jnp.log(jnp.where({0} > 0, {0}, 1.0)), 0.0)",
    "jnp.where(jnp.sin({0}) > 0, {0}, jnp.cos({0}))",
    "jnp.where({0} > 9.0, jnp.nan, {0})",
    "jnp.mod({0}, 1.7)",
    "lax.rem({0}, 0 * {0} + 1.3)",
    "lax.round({0}) * {0}",
    "jnp.angle({0}) + {0}",
    "jnp.real({0} * (1 + 0.5j))",
    "jnp.abs({0} * (0.3 + 0.5j) + 1)",
    "jnp.log(jnp.abs({0}) + 0.5)",
    "jnp.logaddexp({0}, 0.3)",
    "jnp.sinc({0})",
    "jnp.heaviside({0}, 0.5) * {0}",
    "jnp.log2({0} ** 2 + 1)",
    "jnp.exp2(jnp.sin({0}))",
    "jnp.frexp({0})[0]",
    "jnp.modf({0})[0]",
    "jnp.polyval(const(3, (3,), 'float32'), 0.3 * {0})",
    "jnp.select([{0} < -1, {0} < 1], [jnp.sin({0}), {0} ** 2], {0})",
    "jnp.piecewise({0}, [{0} < 0, {0} >= 0], [lambda t: t ** 2, lambda t: jnp.sin(t)])",
    "lax.conj(lax.complex({0}, {0} ** 2))",
    "jnp.exp(1j * {0})",
    "jnp.bitwise_count(3) * {0}",
)
PAIRS = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "{0} * {1}",
    "{0} / ({1} * {1} + 1.5)",
)
REAL_PAIRS = (
    "jnp.maximum({0}, {1})",
    "jnp.minimum({0}, {1})",
    "jnp.arctan2({0}, 1 + {1} ** 2)",
    "jnp.hypot({0}, 1.0 + {1} ** 2)",
    "jnp.power({0} ** 2 + 0.5, jnp.tanh({1}))",
    "jnp.where({0} > {1}, {0}, {1})",
    "jnp.where({0} > {1}, {0} * {1}, 0.0)",
    "jnp.logaddexp({0}, {1})",
    "jnp.copysign({0}, {1})",
    "jnp.where({1} != 0, {0} / {1}, 0.0)",
    "jnp.real(lax.complex(*jnp.broadcast_arrays({0}, {1})) ** 2)",
    "jnp.float_power({0} ** 2 + 0.1, 1.5) + {1}",
    "jax.numpy.fmax({0}, {1})",
    "lax.select(*jnp.broadcast_arrays({0} > 0, {0}, {1}))",
    "lax.clamp(-0.7, {0}, 0.7) * {1}",
)


@operation(4.0, holomorphic=True)
def smooth(b: Builder) -> str:
    return b.one_of(SMOOTH).format(b.pick())


@operation(4.0)
def real(b: Builder) -> str:
    return b.one_of(REAL).format(b.pick())


def partner(b: Builder, name: str) -> str:
    """A value or a constant that broadcasts against another."""
    shape = b.axes(name)
    if b.chance(0.5):
        other = b.pick(lambda v: _broadcasts(tuple(v.shape), shape))
        return other
    kept = [1 if b.chance(0.25) else n for n in shape]
    return b.const(kept[b.integer(0, len(kept)) if b.chance(0.3) else 0 :])


def _broadcasts(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    pairs = zip(reversed(first), reversed(second), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def two(b: Builder, choices: tuple[str, ...]) -> str:
    name = b.pick()
    names = [name, partner(b, name)]
    b.random.shuffle(names)
    return b.one_of(choices).format(*names)


@operation(4.0, holomorphic=True)
def pair(b: Builder) -> str:
    return two(b, PAIRS)


@operation(2.0)
def real_pair(b: Builder) -> str:
    return two(b, REAL_PAIRS)


@operation(0.7, holomorphic=True)
def masked(b: Builder) -> str:
    x = b.pick()
    mask = f"(const({b.integer(0, 99)}, {b.axes(x)}) > 0)"
    other = b.one_of(("0.0", "jnp.nan", b.operand(b.axes(x)), f"jnp.sin({x})"))
    if other == "jnp.nan":
        return f"jnp.where({mask}, {x}, jnp.where({mask}, {other}, 0.0))"
    return f"jnp.where({mask}, {x}, {other})"


@operation(0.6)
def converted(b: Builder) -> str:
    return f"{b.pick()}.astype('{b.one_of(('float32', 'float16', 'bfloat16', 'float64', 'complex64', 'complex128'))}')"


@operation(0.6)
def mixed(b: Builder) -> str:
    names = [n for n, v in b.visible().items() if v.dtype != b.dtype and v.dtype.kind in "fcV"]
    x = b.one_of(names)
    return b.one_of(
        ("jnp.sin({0})", "{0} * {0}", "{0} + 1", "jnp.sum({0})", "jnp.abs({0})", "jnp.conj({0})", "{0} * 2j")
    ).format(x)


@operation(0.4)
def several(b: Builder) -> str:
    names = [b.pick() for _ in range(b.integer(2, 5))]
    shape = b.axes(names[0])
    return " + ".join(n for n in names if b.axes(n) == shape)
