"""The workloads in PyTorch: the equations of a jaxpr as calls of torch, for the primitives that most are made of."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from jax.extend.core import Jaxpr, Literal

from .case import Case, Workload


def torch_peer(workload: Workload, case: Case) -> Callable[..., Any]:
    """The transform of `torch.func` of a workload, run by torch; its arguments are those of the case.

    Raises:
        NotImplementedError: The program has a primitive that is not among those below.
    """
    closed = jax.make_jaxpr(case.function)(*case.args)
    args = [_tensor(arg) for arg in jax.tree.leaves(case.args)]
    consts = [_tensor(const) for const in closed.consts]

    def program(first: Any) -> Any:
        (result,) = _run(closed.jaxpr, consts, [first, *args[1:]])
        return result

    transform = getattr(torch.func, workload.mode)(program)
    return lambda *_: transform(args[0])


def _tensor(array: Any) -> Any:
    return torch.from_numpy(np.array(array))


def _run(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(atom: Any) -> Any:
        return _tensor(atom.val) if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        operands = list(map(read, eqn.invars))
        name = eqn.primitive.name
        if name in ("jit", "pjit", "custom_jvp_call"):
            inner = eqn.params["jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"]
            results = _run(inner.jaxpr, list(map(_tensor, inner.consts)), operands)
        elif name in _PLAIN:
            results = [_PLAIN[name](*operands)]
        elif name in _WITH_PARAMETERS:
            results = [_WITH_PARAMETERS[name](eqn.params, *operands)]
        else:
            raise NotImplementedError(f"{name} in torch")
        env.update(zip(eqn.outvars, results, strict=True))
    return list(map(read, jaxpr.outvars))


def _dot_general(params: Any, a: Any, b: Any) -> Any:
    (summed_a, summed_b), (batch_a, batch_b) = params["dimension_numbers"]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    own_a, own_b = [next(letters) for _ in range(a.ndim)], [next(letters) for _ in range(b.ndim)]
    for i, j in zip((*summed_a, *batch_a), (*summed_b, *batch_b), strict=True):
        own_b[j] = own_a[i]
    batch = [own_a[i] for i in batch_a]
    free = [own_a[i] for i in range(a.ndim) if i not in (*summed_a, *batch_a)]
    free += [own_b[j] for j in range(b.ndim) if j not in (*summed_b, *batch_b)]
    return torch.einsum(f"{''.join(own_a)},{''.join(own_b)}->{''.join(batch + free)}", a, b)


def _broadcast(params: Any, x: Any, *_: Any) -> Any:
    shape = [1] * len(params["shape"])
    for i, axis in enumerate(params["broadcast_dimensions"]):
        shape[axis] = x.shape[i]
    return x.reshape(shape).expand(params["shape"])


def _slice(params: Any, x: Any) -> Any:
    steps = params["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]


def _sum(params: Any, x: Any) -> Any:
    return torch.sum(x, tuple(params["axes"]))


def _max(params: Any, x: Any) -> Any:
    return torch.amax(x, tuple(params["axes"]))


_PLAIN: dict[str, Callable[..., Any]] = {
    **{"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg},
    **{name: getattr(torch, name) for name in ("tanh", "sin", "cos", "exp", "log", "log1p", "sqrt", "abs", "sign")},
    **{"max": torch.maximum, "pow": torch.pow, "ne": torch.ne, "lt": torch.lt, "is_finite": torch.isfinite},
    **{"stop_gradient": lambda x: x.detach(), "select_n": lambda which, no, yes: torch.where(which, yes, no)},
}
_WITH_PARAMETERS: dict[str, Callable[..., Any]] = {
    "integer_pow": lambda params, x: x ** params["y"],
    "dot_general": _dot_general,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "reduce_sum": _sum,
    "reduce_max": _max,
    "squeeze": lambda params, x: x.squeeze(tuple(params["dimensions"])),
    "transpose": lambda params, x: x.permute(*params["permutation"]),
    "concatenate": lambda params, *xs: torch.cat(xs, params["dimension"]),
    "stack": lambda params, *xs: torch.stack(xs, params["axis"]),
    "convert_element_type": lambda params, x: x.to(getattr(torch, np.dtype(params["new_dtype"]).name)),
    "cumsum": lambda params, x: x.cumsum(params["axis"]),
}
