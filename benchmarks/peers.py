"""Other packages on the same workloads, where they are installed: `python -m benchmarks.run --quick --peers`.

Each gives the dense Jacobian, or Hessian, compiled, but for torch, which runs it as its users do, equation by equation.
What a package finds out beforehand counts to its first call.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental import sparse

from .case import Case, Workload

Contender = Callable[..., Any]


def peers(workload: Workload, case: Case) -> dict[str, Contender]:
    """The contenders by name, each a function of the case's arguments."""
    found = {"equinox": _equinox(workload, case)}
    if importlib.util.find_spec("asdex"):
        found["asdex"] = _late(lambda: _asdex(workload, case))
    if importlib.util.find_spec("sparsejac") and workload.kind == "jacobian":
        found["sparsejac"] = _late(lambda: _sparsejac(case))
    if importlib.util.find_spec("torch"):
        found["torch"] = _late(lambda: _torch(workload, case))
    return found


def _late(make: Callable[[], Contender]) -> Contender:
    """A function that is made in its first call."""
    made: list[Contender] = []

    def function(*args: Any) -> Any:
        if not made:
            made.append(make())
        return made[0](*args)

    return function


def _equinox(workload: Workload, case: Case) -> Contender:
    transform = eqx.filter_hessian if workload.kind == "hessian" else eqx.filter_jacfwd
    return eqx.filter_jit(transform(lambda *args: case.function(*args)))


def _torch(workload: Workload, case: Case) -> Contender:
    from .torch_peer import torch_peer

    return torch_peer(workload, case)


def _asdex(workload: Workload, case: Case) -> Contender:
    import asdex  # pyright: ignore[reportMissingImports]

    transform = asdex.hessian if workload.kind == "hessian" else asdex.jacobian
    return jax.jit(transform(case.function, *case.args, argnums=0, output_format="dense"))


def _sparsejac(case: Case) -> Contender:
    """It has to be told the pattern, which is taken from the values of the hand-written Jacobian."""
    import sparsejac  # pyright: ignore[reportMissingImports]

    first = case.args[0]
    shape = jax.eval_shape(case.function, *case.args).shape
    dense = jnp.reshape(case.handwritten(*case.args), (-1, first.size))

    def flat(x: Any, *others: Any) -> Any:
        return jnp.ravel(case.function(jnp.reshape(x, first.shape), *others))

    jacobian = sparsejac.jacfwd(flat, sparse.BCOO.fromdense(dense != 0))
    return jax.jit(lambda x, *others: jnp.reshape(jacobian(jnp.ravel(x), *others).todense(), (*shape, *first.shape)))
