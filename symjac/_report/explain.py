"""`symjac.explain`: what the engine does with a function, equation by equation, and what it costs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import eval_jaxpr
from jax.extend.core import Jaxpr

from symjac import _compat
from symjac._algebra.record import (
    DIRECTION_SCOPE,
    RESULT_SCOPE,
    SCOPE,
    VALUES_SCOPE,
    Record,
    direction_scope,
    recording,
)
from symjac._cost import Cost, equation_cost, sizes
from symjac._engine.interpreter import materialise, push_basis
from symjac._engine.program import TracedFunction, eager_forward_program, replaced, trace
from symjac._report.report import Explanation, Row, advice
from symjac._result.classify import structure_of
from symjac._result.linearize import _evaluate, _jacobian
from symjac._transforms.arguments import Argnums, leaves_and_key, normalised_argnums, split
from symjac._transforms.call import _check_callable, _check_inputs, _check_outputs, _flat, _name, _Outputs
from symjac._transforms.modes import Kind, Transform, _gradient, evaluate

Owner = int | str
"""The number of an equation, or the scope of the values or of the result."""

_OWNER = re.compile(rf"{SCOPE}(\d+)|({VALUES_SCOPE}|{RESULT_SCOPE})")
_DIRECTION = re.compile(rf"{DIRECTION_SCOPE}(\w+)")
_SECONDS_OF_SILENCE = 2.0


def explain(
    fun: Callable[..., Any],
    *args: Any,
    argnums: Argnums = 0,
    has_aux: bool = False,
    transform: Kind = "jacfwd",
    compiled: bool = True,
) -> Explanation:
    """Reports what symjac does with a function: what keeps its structure, what does not, why, and what it all costs.

    The report prints as a table, and as HTML in a notebook. Nothing of the function is run: it is traced, and what the
    engine makes of it is read equation by equation. Stages of work that takes long are told on standard error.

    Args:
        fun: The function, as for `symjac.jacfwd`.
        *args: Its arguments. Only their types matter, unless `fun` looks at values.
        argnums: As for `symjac.jacfwd`.
        has_aux: As for `symjac.jacfwd`.
        transform: Which transform to explain: "jacfwd", "jacrev", "jacobian" or "hessian".
        compiled: Whether to have XLA count the operations of symjac's and of JAX's compiled programs too. This takes
            the time of two compilations.

    Returns:
        The report.

    Raises:
        TypeError: where the transform raises it.

    >>> import jax.numpy as jnp
    >>> import symjac
    >>> report = symjac.explain(lambda x: jnp.sin(x)[::-1], jnp.ones(4), compiled=False)
    >>> print(report.structure)
    sparse 4 x 4
    >>> [(row.primitive, row.after) for row in report.rows]
    [('mul', 'diagonal'), ('rev', 'weighted selection')]
    """
    _check_callable(fun)
    progress = _Progress()
    positions = normalised_argnums(argnums)
    is_tuple = not isinstance(positions, int)
    positions = positions if isinstance(positions, tuple) else (positions,)
    request = Transform(transform, positions, is_tuple, is_tuple, has_aux, False, False, False, None)
    leaves, _ = leaves_and_key(args, {}, positions)
    call = split(args, {}, positions, leaves)
    _check_inputs(request, [jax.typeof(leaves[i]) for i in call.active])
    outputs: list[_Outputs] = []
    flat = _flat(fun, call, has_aux, outputs)
    progress.say(f"tracing {_name(fun)}")
    try:
        function, closed = trace(flat, leaves, call.active)
    except jax.errors.ConcretizationTypeError:
        return _explained(_from_values(flat, request, leaves, call.active), _name(fun), None, progress)
    _check_outputs(request, function.output_avals)
    subject = _from_jaxpr(function, request, list(closed.consts), leaves)
    theirs = _jax_program(function, request) if compiled else None
    return _explained(subject, _name(fun), theirs, progress)


@dataclass(frozen=True)
class _Subject:
    """What is explained.

    Attributes:
        request: The transform.
        engine: Computes the blocks from the constants and the leaves.
        consts: The constants.
        leaves: The leaves.
        basis: For each mode, the number of directions that JAX pushes through the program.
        structure: Gives the structure of the Jacobian.
    """

    request: Transform
    engine: Callable[[Sequence[Array], Sequence[Array]], Any]
    consts: Sequence[Array]
    leaves: Sequence[Array]
    basis: dict[str, int]
    structure: Callable[[], str]


def _from_jaxpr(
    function: TracedFunction, request: Transform, consts: Sequence[Array], leaves: Sequence[Array]
) -> _Subject:
    def engine(consts: Sequence[Array], leaves: Sequence[Array]) -> Any:
        return evaluate(request, function, consts, leaves)

    def structure() -> str:
        subject, own = function, consts
        if request.kind == "hessian":
            subject, closed = trace(_gradient(request, function, consts), leaves, function.active)
            own = closed.consts
        found: list[Any] = []

        def run(consts: Sequence[Array], leaves: Sequence[Array]) -> list[Array]:
            found.append(_evaluate(subject, consts, leaves, subject.active)[1])
            return []

        try:
            jax.make_jaxpr(run)(list(own), list(leaves))
        except TypeError:  # There is no structured Jacobian: only reverse mode is allowed, or it is not holomorphic.
            return ""
        return _structure(found[0])

    basis = {"forward": sizes(function.active_avals), "reverse": sizes(function.output_avals)}
    return _Subject(request, engine, consts, leaves, basis, structure)


def _from_values(flat: Any, request: Transform, leaves: Sequence[Array], active: Sequence[int]) -> _Subject:
    """What is explained where the function looks at values, so that it is linearised at these."""

    def of_active(*active_leaves: Array) -> tuple[list[Array], list[Array]]:
        return flat(*replaced(leaves, active, active_leaves))

    inputs = [leaves[i] for i in active]
    program, outputs, _ = eager_forward_program(of_active, inputs)
    found: list[Any] = []

    def engine(consts: Sequence[Array], leaves: Sequence[Array]) -> Any:
        with direction_scope("forward"):
            _, tangents = push_basis(program, consts, [])
            found.append(tangents)
            return [materialise(t, leaf) for t in tangents for leaf in range(len(inputs))]

    def structure() -> str:
        outs, ins = [jax.typeof(x) for x in outputs], [jax.typeof(x) for x in inputs]
        return _structure(_jacobian(found[-1], outs, ins, range(len(inputs))))

    basis = {"forward": sum(map(jnp.size, inputs)), "reverse": sum(map(jnp.size, outputs))}
    return _Subject(request, engine, list(program.closed.consts), [], basis, structure)


def _structure(jacobian: Any) -> str:
    return str(structure_of(jacobian.layout))


def _explained(subject: _Subject, name: str, theirs: Any, progress: _Progress) -> Explanation:
    progress.say("pushing the identity")
    with recording() as records:
        closed = jax.make_jaxpr(subject.engine)(list(subject.consts), list(subject.leaves))
    jaxpr, own = _compat.opened(closed)
    jaxpr, _ = _compat.without_dead_code(jaxpr, [True] * len(jaxpr.invars))
    account = _Account({record.number for record in records})
    account.add(jaxpr, VALUES_SCOPE, 1.0)
    direction = _direction(account, records, subject.request.kind)
    rows = _rows(records, account, direction, subject.basis)
    ours = jax_flops = None
    if theirs is not None:
        progress.say(f"compiling symjac's program of {len(jaxpr.eqns)} equations")
        ours = _compiled_flops(lambda *inputs: eval_jaxpr(jaxpr, (), *own, *inputs), subject)
        progress.say(f"compiling what jax.{subject.request.kind} makes")
        jax_flops = _compiled_flops(theirs, subject)
    report = Explanation(
        function=name,
        transform=subject.request.kind,
        direction=direction,
        basis=subject.basis[direction],
        structure=subject.structure(),
        rows=tuple(rows),
        values=account.costs.get(VALUES_SCOPE, Cost()),
        result=account.costs.get(RESULT_SCOPE, Cost()),
        order=tuple(account.products.get(RESULT_SCOPE, ())),
        compiled_flops=ours,
        jax_compiled_flops=jax_flops,
        has_loops=account.has_loops,
        advice="",
    )
    return advice(report)


@dataclass
class _Account:
    """What a program costs, by the equation of the linear program that it is computed for.

    Attributes:
        numbers: The numbers of the recorded equations.
        costs: The cost for each of them, for the values and for the result.
        products: The products of arrays among them, in their order.
        directions: The modes that something was computed in.
        has_loops: Whether there are loops.
    """

    numbers: set[int]
    costs: dict[Owner, Cost] = field(default_factory=dict)
    products: dict[Owner, list[str]] = field(default_factory=dict)
    directions: set[str] = field(default_factory=set)
    has_loops: bool = False

    def add(self, jaxpr: Jaxpr, owner: Owner, times: float) -> None:
        """Adds a program that is run several times; what names no owner of its own belongs to `owner`."""
        for eqn in jaxpr.eqns:
            scopes = _compat.scopes_of(eqn)
            self.directions.update(_DIRECTION.findall(scopes))
            self._add_equation(eqn, self._owner(scopes) or owner, times)

    def _owner(self, scopes: str) -> Owner | None:
        for number, other in reversed(_OWNER.findall(scopes)):
            if other:
                return other
            if int(number) in self.numbers:
                return int(number)
        return None

    def _add_equation(self, eqn: Any, owner: Owner, times: float) -> None:
        name, inner = eqn.primitive.name, _compat.inner_jaxprs(eqn.params)
        self.has_loops |= name in ("scan", "while")
        if name == "scan":
            self.add(inner[0], owner, times * eqn.params["length"])
        elif name == "cond":
            self.add(max(inner, key=lambda each: _total(each)), owner, times)
        elif inner and not name.startswith(("scatter", "reduce")):
            for each in inner:
                self.add(each, owner, times)
        else:
            cost = equation_cost(eqn).times(times)
            self.costs[owner] = self.costs.get(owner, Cost()) + cost
            if name == "dot_general":
                self.products.setdefault(owner, []).append(_product(eqn))


def _total(jaxpr: Jaxpr) -> float:
    return sum((equation_cost(eqn) for eqn in jaxpr.eqns), Cost()).total


def _product(eqn: Any) -> str:
    """A product of two arrays in words: their shapes, and that of the result."""
    first, second, result = (" x ".join(map(str, v.aval.shape)) or "1" for v in (*eqn.invars, *eqn.outvars))
    return f"({first}) ({second}) -> ({result})"


def _direction(account: _Account, records: Sequence[Record], kind: Kind) -> str:
    """The mode of the program that is run; where nothing is, that of the transform."""
    if kind == "hessian":
        return "forward"
    tried = {record.direction for record in records}
    own = "forward" if kind == "jacfwd" or tried == {"forward"} else "reverse"
    return next(iter(account.directions)) if len(account.directions) == 1 else own


def _rows(records: Sequence[Record], account: _Account, direction: str, basis: dict[str, int]) -> Iterable[Row]:
    """A row for each equation, ahead of those inside of it."""
    chosen = sorted((r for r in records if r.direction == direction), key=lambda record: record.number)
    outer = {record.enclosing for record in chosen}
    known = {record.number: record for record in chosen}
    for record in chosen:
        around = []
        while (number := (around[-1] if around else record).enclosing) in known:
            around.append(known[number])
        line = next((each.line for each in (record, *around) if each.line), "")
        theirs = Cost() if record.number in outer else record.cost.times(basis[direction] * record.times)
        yield Row(
            primitive=record.primitive,
            line=line,
            before=tuple(text for text in record.operands if text != "array"),
            after=" ; ".join(text for text in record.results if text != "array"),
            cost=account.costs.get(record.number, Cost()),
            jax_cost=theirs,
            fallback=record.fallback,
            notes=record.notes,
            order=tuple(account.products.get(record.number, ())),
            depth=len(around),
            times=record.times,
        )


def _jax_program(function: TracedFunction, request: Transform) -> Callable[..., Any]:
    """JAX's own transform, as a function of the constants and the leaves."""

    def theirs(*inputs: Array) -> Any:
        first = len(inputs) - function.n_leaves
        consts, leaves = inputs[:first], inputs[first:]

        def of_active(active: Sequence[Array]) -> list[Array]:
            return function.of_active(consts, leaves)(*active)[0]

        return getattr(jax, request.kind)(of_active)([leaves[i] for i in function.active])

    return theirs


def _compiled_flops(program: Callable[..., Any], subject: _Subject) -> float | None:
    """The floating-point operations that XLA counts; None where the program cannot be made, or is not counted."""
    inputs = [*subject.consts, *subject.leaves]
    try:
        analysis = jax.jit(program).lower(*inputs).compile().cost_analysis()
    except (TypeError, ValueError):
        return None
    return None if analysis is None else max(float(analysis.get("flops", 0.0)), 0.0)


class _Progress:
    """Tells on standard error what is being done, once it has taken some seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def say(self, what: str) -> None:
        """Tells what is done now."""
        if time.monotonic() - self._start > _SECONDS_OF_SILENCE:
            sys.stderr.write(f"symjac.explain: {what}\n")
            sys.stderr.flush()
