"""Contractions, convolutions and linear algebra."""

from __future__ import annotations

from .builder import Builder, operation
from .operations_layout import axis, with_axes


@operation(2.5, holomorphic=True)
def matmul(b: Builder) -> str:
    x = with_axes(b)
    shape = b.axes(x)
    if b.chance(0.5):
        other = b.operand((shape[-1], b.size()) if b.chance(0.7) else (shape[-1],))
        return f"{x} @ {other}"
    other = b.operand((b.size(), shape[-2] if len(shape) > 1 else shape[-1]))
    return f"{other} @ {x}"


@operation(2.0, holomorphic=True)
def einsum(b: Builder) -> str:
    letters = "ijklmn"
    names = [b.pick(lambda v: v.ndim <= 3) for _ in range(b.one_of((1, 2, 2, 2, 3)))]
    sizes: dict[str, int] = {}
    terms = []
    operands = []
    for i, name in enumerate(names):
        shape = b.axes(name)
        if i and b.chance(0.4):
            labels = b.random.sample(sorted(sizes), min(len(sizes), b.integer(1, 2)))
            operands.append(b.const([sizes[label] for label in labels]))
        else:
            labels = []
            for n in shape:
                fitting = [label for label in sizes if sizes[label] == n and (label not in labels or b.chance(0.2))]
                label = b.one_of(fitting) if fitting and b.chance(0.7) else letters[len(sizes) % 6]
                if sizes.get(label, n) != n:
                    raise ValueError
                sizes[label] = n
                labels.append(label)
            operands.append(name)
        terms.append("".join(labels))
    used = sorted(set("".join(terms)))
    out = "".join(b.random.sample(used, b.integer(0, min(3, len(used)))))
    return f"jnp.einsum('{','.join(terms)}->{out}', {', '.join(operands)})"


@operation(1.0, holomorphic=True)
def dot_general(b: Builder) -> str:
    x = with_axes(b)
    shape = b.axes(x)
    places = list(range(len(shape)))
    b.random.shuffle(places)
    n_batch = b.integer(0, len(places))
    n_contract = b.integer(0, len(places) - n_batch)
    batch, contract = places[:n_batch], places[n_batch : n_batch + n_contract]
    other = [*batch, *contract]
    b.random.shuffle(other)
    sizes = [shape[i] for i in other]
    if b.chance(0.5):
        sizes.append(b.size())
    left = (tuple(contract), tuple(other.index(i) for i in contract))
    right = (tuple(batch), tuple(other.index(i) for i in batch))
    y = b.operand(sizes)
    if b.chance(0.5):
        return f"lax.dot_general({x}, {y}, {(left, right)})"
    return f"lax.dot_general({y}, {x}, {(left[::-1], right[::-1])})"


PRODUCTS = (
    "jnp.outer({0}, {0})",
    "jnp.inner({0}, {0})",
    "{0}.ravel() @ {0}.ravel()",
    "jnp.atleast_2d({0}) @ jnp.atleast_2d({0}).swapaxes(-1, -2)",
    "jnp.kron({0}.ravel()[:2], {0})",
    "jnp.tensordot({0}, {0}, ((0,), (0,)))",
    "jnp.vander({0}.ravel(), 3)",
    "jnp.matvec(jnp.atleast_2d({0}), jnp.ones({0}.shape[-1:], {0}.dtype))",
)


@operation(1.0, holomorphic=True)
def product(b: Builder) -> str:
    return b.one_of(PRODUCTS).format(with_axes(b))


@operation(1.2)
def conv(b: Builder) -> str:
    x = with_axes(b)
    spatial = b.one_of((1, 1, 2))
    shape = list(b.axes(x))
    target = [1] * max(0, spatial + 2 - len(shape)) + shape
    target = [target[0], target[1], *target[2:]][: spatial + 2]
    source = f"{x}.reshape({tuple([*target[:-1], -1])})"
    groups = b.one_of([g for g in (1, 1, target[1], 2) if g and target[1] % g == 0])
    kernel = (b.integer(1, 2) * groups, target[1] // groups, *(b.integer(1, 3) for _ in range(spatial)))
    padding = b.one_of(("'SAME'", "'VALID'", str([(b.integer(-1, 2), b.integer(0, 2)) for _ in range(spatial)])))
    strides = tuple(b.integer(1, 2) for _ in range(spatial))
    lhs = tuple(b.one_of((1, 1, 2)) for _ in range(spatial))
    rhs = tuple(b.one_of((1, 1, 2)) for _ in range(spatial))
    weights = b.operand(kernel)
    return (
        f"lax.conv_general_dilated({source}, {weights}, {strides}, {padding}, lhs_dilation={lhs}, "
        f"rhs_dilation={rhs}, feature_group_count={groups})"
    )


def square(b: Builder) -> tuple[str, str]:
    """A well-conditioned matrix that depends on a value, and its size."""
    x = with_axes(b)
    n = b.axes(x)[-1]
    if not 1 <= n <= 3:
        raise ValueError
    return f"(jnp.eye({n}, dtype='{b.dtype}') * 4 + jnp.tanh({x}.reshape(-1, {n})[:1]) + {b.const((n, n))})", x


LINALG = (
    "jnp.linalg.solve({0}, {1}.reshape(-1, {0}.shape[-1])[0])",
    "jnp.linalg.inv({0})",
    "jnp.linalg.det({0})",
    "jnp.linalg.slogdet({0})[1]",
    "jnp.linalg.cholesky({0} @ {0}.T)",
    "jnp.linalg.eigvalsh({0} + {0}.T)",
    "jax.scipy.linalg.solve_triangular({0}, {1}.reshape(-1, {0}.shape[-1])[0], lower=True)",
    "jax.scipy.linalg.cho_solve((jnp.linalg.cholesky({0} @ {0}.T), True), {1}.reshape(-1, {0}.shape[-1])[0])",
    "jnp.linalg.qr({0})[1]",
    "jnp.linalg.svd({0}, compute_uv=False)",
    "jax.scipy.linalg.expm(0.1 * {0})",
    "jnp.linalg.matrix_power({0}, 3) / 20",
)


@operation(0.8)
def linalg(b: Builder) -> str:
    if b.dtype not in ("float64", "float32"):
        raise ValueError
    matrix, x = square(b)
    return b.one_of(LINALG).format(matrix, x)


@operation(0.5, holomorphic=True)
def along_matrix(b: Builder) -> str:
    x = with_axes(b)
    place = axis(b, x)
    n = b.axes(x)[place]
    return f"jnp.moveaxis(jnp.tensordot({b.const((b.size(), n))}, {x}, ((1,), ({place},))), 0, {place})"
