"""Everything taken from JAX's private modules, and every branch on JAX's version."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax import lax
from jax._src import ad_checkpoint, ad_util, config, core, custom_derivatives, dispatch, pjit, source_info_util, util
from jax._src.array import ArrayImpl as ArrayImpl
from jax._src.core import AbstractValue as AbstractValue
from jax._src.core import trace_state_clean as trace_state_clean
from jax._src.interpreters import ad, partial_eval
from jax._src.lax import lax as lax_internal
from jax._src.lax.lax import _convert_element_type
from jax._src.named_sharding import UNSPECIFIED as UNSPECIFIED
from jax._src.state.types import AbstractRef
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.extend.core import array_types as core_array_types

from symjac._types import PyTreeDef


def with_element_type(x: jax.Array, dtype: Any, weak_type: bool) -> jax.Array:
    """Returns `x` with the given dtype and weak type, and `x` itself where it has them."""
    aval = jax.typeof(x)
    if aval.dtype == dtype and aval.weak_type == weak_type:
        return x
    converted: Any = _convert_element_type(x, dtype, weak_type)
    return converted


def opened(closed: ClosedJaxpr) -> tuple[Jaxpr, list[Any]]:
    """Returns a jaxpr whose leading inputs are the constants of `closed`, and these constants."""
    return partial_eval.convert_constvars_jaxpr(closed.jaxpr), list(closed.consts)


def without_dead_code(
    jaxpr: Jaxpr, keep: Sequence[bool], outputs: Sequence[bool] | None = None
) -> tuple[Jaxpr, list[bool]]:
    """Removes what no output and no effect of an opened jaxpr needs.

    Args:
        jaxpr: The jaxpr, without constants.
        keep: For each input, whether it stays where it is not used.
        outputs: For each output, whether it stays. The default is that all do.

    Returns:
        The jaxpr, and for each input of the old one whether it is an input of the new one.
    """
    wanted = [True] * len(jaxpr.outvars) if outputs is None else list(outputs)
    return partial_eval.dce_jaxpr(jaxpr, wanted, instantiate=list(keep))


def closed(jaxpr: Jaxpr, consts: Sequence[Any]) -> ClosedJaxpr:
    """Returns a jaxpr whose leading inputs are bound to constants: the inverse of `opened`."""
    if hasattr(Jaxpr, "consts"):  # JAX 0.12 has one class for both.
        return ClosedJaxpr(jaxpr, list(consts))
    return ClosedJaxpr(partial_eval.convert_invars_to_constvars(jaxpr, len(consts)), list(consts))


def bind_equation(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """Evaluates one equation of a jaxpr in its own context and returns the list of its results."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    with eqn.ctx.manager:
        result = eqn.primitive.bind(*functions, *operands, **params)
    return list(result) if eqn.primitive.multiple_results else [result]


def varying_as(x: jax.Array, aval: Any) -> jax.Array:
    """Returns `x`, which inside of a `shard_map` may differ between the devices wherever a value of that type may."""
    missing = _varying(aval) - _varying(jax.typeof(x))
    return core.pvary(x, tuple(missing)) if missing else x


def _varying(aval: Any) -> frozenset[str]:
    manual = getattr(aval, "manual_axis_type", None)  # JAX 0.7 has `vma`.
    return frozenset(getattr(aval, "vma", ()) if manual is None else manual.varying)


def sharded_as(x: jax.Array, like: jax.Array) -> jax.Array:
    """Returns `x` with the sharding of another array of its shape, where that is a part of the type."""
    wanted = jax.typeof(like).sharding
    return jax.sharding.reshard(x, wanted) if _is_explicit(wanted) and jax.typeof(x).sharding != wanted else x


def sharded_by(x: jax.Array, spec: Sequence[Any]) -> jax.Array:
    """Returns `x`, spread as `spec` tells where shardings are a part of the type and it is spread nowhere yet."""
    own = jax.typeof(x).sharding
    if not any(axis is not None for axis in spec) or any(axis is not None for axis in own.spec):
        return x
    return jax.sharding.reshard(x, jax.sharding.PartitionSpec(*spec)) if _is_explicit(own) else x


def _is_explicit(sharding: Any) -> bool:
    return any(kind == jax.sharding.AxisType.Explicit for kind in sharding.mesh.axis_types)


def trace_of(value: Any) -> Callable[[], Any]:
    """Returns a weak reference to the trace that a value belongs to."""
    return weakref.ref(value._trace) if isinstance(value, core.Tracer) else no_trace


def no_trace() -> None:
    """The reference to no trace."""


def makes_references(eqn: Any) -> bool:
    """Whether an equation, or one inside it, makes mutable arrays."""
    inner = core.jaxprs_in_params(eqn.params)
    return any(isinstance(var.aval, AbstractRef) for var in eqn.outvars) or any(
        makes_references(each) for jaxpr in inner for each in jaxpr.eqns
    )


def user_line(eqn: Any) -> str:
    """Returns the line of the user's code that an equation comes from, as ``file:line (function)``."""
    return source_info_util.summarize(eqn.source_info)


def has_custom_rules(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr, or one inside it, holds derivative rules of the user's, which are Python functions."""
    return any(
        eqn.primitive.name in _CUSTOM_RULES or any(map(has_custom_rules, core.jaxprs_in_params(eqn.params)))
        for eqn in jaxpr.eqns
    )


def has_rules_of_the_user(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr, or one inside it, holds derivative rules other than those that JAX's own functions have."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in _CUSTOM_RULES:
            called = eqn.params.get("call_jaxpr")
            source = "" if called is None else str(called.jaxpr.debug_info.func_src_info)
            if _JAX_DIRECTORY not in source:
                return True
        if any(map(has_rules_of_the_user, core.jaxprs_in_params(eqn.params))):
            return True
    return False


_JAX_DIRECTORY = os.path.dirname(jax.__file__)
_CUSTOM_RULES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin", "custom_vmap_call")


PjitFunction = type(jax.jit(lambda: None))
"""The type of what `jax.jit` returns."""

jaxpr_types = (ClosedJaxpr, Jaxpr)
array_types = tuple({np.ndarray, np.generic, ArrayImpl, *core_array_types})
"""The types of arrays that may stand as constants in a jaxpr."""


@util.cache(max_size=1, trace_context_in_key=False)
def epoch() -> object:
    """Returns an object that is a new one after each `jax.clear_caches()`."""
    return object()


def context() -> Hashable:
    """Returns all settings that a trace depends on: precision, x64, the default device, meshes, random bits ..."""
    return config.trace_context(), config.default_prng_impl.value, config.random_seed_offset.value


def is_jit_disabled() -> bool:
    """Whether `jax_disable_jit` is set."""
    return bool(config.disable_jit.value)


def context_of(eqn: JaxprEqn) -> tuple[Any, ...]:
    """Returns the settings that an equation was traced under."""
    return tuple(getattr(eqn.ctx, name, None) for name in _CONTEXT_NAMES)


_CONTEXT_NAMES = tuple(name for name in core.JaxprEqnContext.__slots__ if not name.startswith("_"))


def plain_aux(aux: Any) -> Any:
    """Returns the auxiliary data of a pytree node, with Equinox's own containers replaced by tuples."""
    if type(aux).__module__.startswith("equinox."):
        return (type(aux), *(plain_aux(getattr(aux, name)) for name in getattr(type(aux), "__slots__", ())))
    if isinstance(aux, tuple):
        return tuple(plain_aux(each) for each in aux)
    return aux


# Primitives without a public name, and those that only some versions have (None elsewhere).
add_any_p = ad_util.add_any_p
device_put_p = dispatch.device_put_p
sharding_constraint_p = pjit.sharding_constraint_p
name_p = ad_checkpoint.name_p
stack_p = getattr(lax, "stack_p", None)
unstack_p = getattr(lax, "unstack_p", None)
tile_p = getattr(lax, "tile_p", None)
polynomial_p = getattr(lax, "polynomial_p", None)
reshard_p = getattr(pjit, "reshard_p", None)
pvary_p = getattr(core, "pvary_p", None)
call_primitives = {
    primitive
    for module, name in (
        (pjit, "jit_p"),
        (core, "closed_call_p"),
        (core, "call_p"),
        (core, "eval_jaxpr_p"),
        (ad_checkpoint, "remat_p"),
        (custom_derivatives, "custom_jvp_call_p"),
        (lax_internal, "composite_p"),
    )
    if (primitive := getattr(module, name, None)) is not None
}
"""Primitives that only call a jaxpr."""


def called_jaxpr(params: Any) -> tuple[Jaxpr, list[Any]]:
    """Returns the opened jaxpr that an equation of a call primitive calls, and its constants."""
    inner = params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"]
    is_closed = isinstance(inner, ClosedJaxpr) and hasattr(inner, "consts")
    return opened(inner) if is_closed else (cast(Jaxpr, inner), [])


def scan_sizes(params: Any) -> tuple[int, int]:
    """Returns the numbers of constants and of carried values of a scan equation."""
    if "ft_in" in params:  # JAX 0.12 describes the operands by trees.
        n_operands = len(params["jaxpr"].in_avals)
        consts, carry, _ = params["ft_in"].update(range(n_operands)).unpack()
        return len(list(consts)), len(list(carry))
    return params["num_consts"], params["num_carry"]


def new_variable(aval: Any) -> Any:
    """Returns a variable of a type."""
    return core.Var(aval)


def with_inputs(jaxpr: Jaxpr, invars: Sequence[Any], eqns: Sequence[Any]) -> Jaxpr:
    """Returns an opened jaxpr with other inputs and equations."""
    info = jaxpr.debug_info
    if hasattr(info, "with_unknown_names"):
        info = info.with_unknown_names()
    elif info.arg_names is not None:
        info = info._replace(arg_names=("",) * len(invars))
    return jaxpr.replace(invars=list(invars), eqns=list(eqns), debug_info=info)


def scan_with_more_consts(params: Any, n: int) -> dict[str, Any]:
    """Returns the parameters of a scan equation that takes `n` more constants, ahead of the others."""
    if "ft_in" in params:
        from jax._src import flattree  # pyright: ignore[reportAttributeAccessIssue]  # older versions have none

        consts, carry, xs = params["ft_in"].unpack()
        return {**params, "ft_in": flattree.pack((flattree.pack((flattree.nones(n), consts)), carry, xs))}
    more = {"num_consts": n + params["num_consts"]}
    if "linear" in params:
        more["linear"] = (False,) * n + tuple(params["linear"])
    return {**params, **more}


def current_trace() -> Any:
    """Returns the trace that operations are recorded in."""
    return core.trace_ctx.trace


def evaluate_closed(jaxpr: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    """Returns the results of a closed jaxpr."""
    return core.jaxpr_as_fun(jaxpr)(*args)


def contains(jaxpr: Jaxpr, names: Sequence[str]) -> bool:
    """Whether a jaxpr, or one inside it, has an equation of a primitive of one of these names."""
    return any(
        eqn.primitive.name in names or any(contains(inner, names) for inner in core.jaxprs_in_params(eqn.params))
        for eqn in jaxpr.eqns
    )


def inner_jaxprs(params: Any) -> list[Jaxpr]:
    """Returns the jaxprs in the parameters of an equation, without their constants."""
    return list(core.jaxprs_in_params(params))


def scopes_of(eqn: Any) -> str:
    """Returns the named scopes that an equation was traced in, the outermost first, separated by slashes."""
    return str(eqn.source_info.name_stack)


ragged_dot_p = lax_internal.ragged_dot_general_p
stop_gradient_p = getattr(lax_internal, "stop_gradient_p", None)
nonlinear_primitives = {
    primitive
    for module in (lax_internal, lax, lax.linalg)
    for primitive in vars(module).values()
    if isinstance(primitive, core.Primitive)
    and primitive not in ad.primitive_transposes
    and primitive not in getattr(ad, "fancy_transposes", {})
    and primitive is not stop_gradient_p
}
"""Primitives of `jax.lax` that are linear in no operand, for they have no transpose."""


def composed(outer: PyTreeDef, inner: PyTreeDef) -> PyTreeDef:
    """Returns the tree that has another one at each of its leaves."""
    return outer.compose(inner)
