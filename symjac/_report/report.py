"""The report of `symjac.explain`: its rows, and how it is shown."""

from __future__ import annotations

import html
import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from symjac._cost import Cost

_MOST_ROWS = 60
_WIDEST = 44
_NOTHING = Cost()


@dataclass(frozen=True)
class Row:
    """One equation of the linear program.

    Attributes:
        primitive: The name of its primitive.
        line: The line of the user's code, as ``file:line:column (function)``.
        before: The structures of the operands that depend on the inputs.
        after: The structure of the result.
        cost: What symjac computes for it: floating-point operations, and bytes written.
        jax_cost: What JAX's transform pays for it: its own cost, once for each direction.
        fallback: Empty, or why it was done densely: "no rule" or "declined".
        notes: What else happened: "joined" where terms of different structure became one array, "along an axis" where
            the primitive acts along an axis that had structure, "made dense" where a map could not be kept.
        order: The products of arrays that were computed for it, in their order.
        depth: The number of calls, loops and branches that it is inside of.
        times: How often it is run: the number of steps of the scans that it is inside of.
    """

    primitive: str
    line: str
    before: tuple[str, ...]
    after: str
    cost: Cost
    jax_cost: Cost
    fallback: str
    notes: tuple[str, ...]
    order: tuple[str, ...]
    depth: int
    times: int

    @property
    def lost(self) -> str:
        """Where structure was lost, and why; else empty."""
        return ", ".join(([self.fallback] if self.fallback else []) + list(self.notes))

    @property
    def place(self) -> str:
        """The file and the line, without the folder; the line alone where it is in a notebook."""
        place = re.sub(r":\d+( \(.*\))?$", "", self.line.rsplit("/", 1)[-1])
        return "line " + place.rsplit(":", 1)[-1] if "/ipykernel_" in self.line else place

    @property
    def code(self) -> str:
        """The text of the line, where it can be read."""
        found = re.match(r"(.*?):(\d+)", self.line)
        return linecache.getline(found[1], int(found[2])).strip() if found else ""


@dataclass(frozen=True, repr=False)
class Explanation:
    """What symjac does with a function. It prints as a table.

    Attributes:
        function: The name of the function.
        transform: The transform: "jacfwd", "jacrev", "jacobian" or "hessian".
        direction: The mode whose linear program is run: "forward" or "reverse".
        basis: How many directions JAX pushes through that program.
        structure: The structure of the Jacobian.
        rows: The equations that depend on the inputs, those inside of a call or a loop after it.
        values: What the values cost that the equations need.
        result: What it costs to make the array at last: pending products, and writing it.
        order: The products of arrays in the result, in the order that was chosen.
        compiled_flops: The floating-point operations of symjac's compiled program, as XLA counts them.
        jax_compiled_flops: Those of JAX's compiled program.
        has_loops: Whether there are loops; XLA counts the body of each once.
        advice: One sentence about what costs most.
    """

    function: str
    transform: str
    direction: str
    basis: int
    structure: str
    rows: tuple[Row, ...]
    values: Cost
    result: Cost
    order: tuple[str, ...]
    compiled_flops: float | None
    jax_compiled_flops: float | None
    has_loops: bool
    advice: str

    @property
    def cost(self) -> Cost:
        """What symjac's program costs, by symjac's own count, which counts each step of a scan."""
        return sum((row.cost for row in self.rows), self.values + self.result)

    @property
    def jax_cost(self) -> Cost:
        """What JAX's program costs, by the same count."""
        return sum((row.jax_cost for row in self.rows), self.values)

    @property
    def lost(self) -> tuple[Row, ...]:
        """The rows at which structure was lost."""
        return tuple(row for row in self.rows if row.lost)

    @property
    def is_structured(self) -> bool:
        """Whether no equation was done densely for want of a rule."""
        return not any(row.fallback for row in self.rows)

    def __repr__(self) -> str:
        """The table."""
        return str(self)

    def __str__(self) -> str:
        """The table."""
        lines = [*self._head(), "", *_text_table([_HEADER, *self._cells()]), ""]
        return "\n".join([*lines, *self._foot()])

    def _repr_html_(self) -> str:
        """The table, for a notebook."""
        cells = [[html.escape(cell) for cell in row] for row in [_HEADER, *self._cells()]]
        titles = ["" if row is None else html.escape(row.code, quote=True) for row in self._shown()]
        titles.extend([""] * (len(cells) - 1 - len(titles)))
        style = "text-align:left;white-space:pre;font-family:monospace;padding:1px 8px"
        head = "".join(f'<th style="{style}">{cell}</th>' for cell in cells[0])
        body = "".join(
            f'<tr title="{title}">' + "".join(f'<td style="{style}">{cell}</td>' for cell in row) + "</tr>"
            for row, title in zip(cells[1:], titles, strict=True)
        )
        paragraphs = [
            "".join(f"<div>{html.escape(line)}</div>" for line in part) for part in (self._head(), self._foot())
        ]
        return f"{paragraphs[0]}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{paragraphs[1]}"

    def _head(self) -> list[str]:
        title = f"symjac.{self.transform} of {self.function}, {self.direction} mode"
        name = "Hessian" if self.transform == "hessian" else "Jacobian"
        return [title, *([f"The {name}: {self.structure}"] if self.structure else [])]

    def _foot(self) -> list[str]:
        lines = []
        if self.order:
            lines.append("Order of the products in the result: " + ", then ".join(self.order))
        if self.compiled_flops is not None and self.jax_compiled_flops is not None:
            loops = " (the body of a loop is counted once)" if self.has_loops else ""
            ours, theirs = number(self.compiled_flops), number(self.jax_compiled_flops)
            lines.append(f"Compiled, by XLA's count{loops}: {ours} flops; jax.{self.transform}: {theirs} flops")
        return [*lines, self.advice]

    def _shown(self) -> list[Row | None]:
        """The rows that are shown, with None where some are left out: the dearest, and where structure was lost."""
        if len(self.rows) <= _MOST_ROWS:
            return list(self.rows)
        order = sorted(range(len(self.rows)), key=lambda i: (not self.rows[i].lost, -self.rows[i].cost.total))
        keep = set(order[:_MOST_ROWS])
        shown: list[Row | None] = []
        for i, row in enumerate(self.rows):
            if i in keep:
                shown.append(row)
            elif not shown or shown[-1] is not None:
                shown.append(None)
        return shown

    def _cells(self) -> list[tuple[str, ...]]:
        cells = [_cells_of(row) for row in self._shown()]
        total, theirs = self.cost, self.jax_cost
        return [
            *cells,
            ("values", "", "", number(self.values.flops), number(self.values.bytes), number(self.values.flops), "", ""),
            ("result", "", "", number(self.result.flops), number(self.result.bytes), "", "", ""),
            ("total", "", "", number(total.flops), number(total.bytes), number(theirs.flops), "", ""),
        ]


_HEADER = ("equation", "before", "after", "flops", "bytes", "JAX's flops", "lost", "line")


def _cells_of(row: Row | None) -> tuple[str, ...]:
    if row is None:
        return ("...",) + ("",) * 7
    name = "  " * row.depth + row.primitive + (f" (x {row.times})" if row.times > 1 else "")
    before = _cut(", ".join(dict.fromkeys(row.before)))
    counts = (number(row.cost.flops), number(row.cost.bytes), number(row.jax_cost.flops))
    return (name, before, _cut(row.after), *counts, row.lost, f"{row.place}  {_cut(row.code)}".rstrip())


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    right = range(3, 6)
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def number(count: float) -> str:
    """A count in three digits.

    >>> number(0.0), number(950.0), number(12_345.0), number(2.5e6)
    ('0', '950', '12.3k', '2.50M')
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= 0.9995 * size:
            scaled = count / size
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f}{unit}"
    return f"{count:.0f}"


def advice(report: Explanation) -> Explanation:
    """The report with a sentence about the row that costs most, those where structure was lost ahead of others."""
    return replace(report, advice=_advice(report))


def _advice(report: Explanation) -> str:
    dense = [row for row in report.rows if row.fallback]
    joined = [row for row in report.rows if row.notes and not row.fallback]
    if dense:
        return _about_fallback(max(dense, key=lambda row: row.cost.total), report.basis)
    worst = max(report.rows, key=lambda row: row.cost.total, default=None)
    if worst in joined:
        return _about_join(worst)
    if report.cost == _NOTHING:
        return "Nothing is computed: the Jacobian exists already."
    if report.result.total >= max((row.cost.total for row in report.rows), default=0.0):
        if report.result.total < report.values.total:
            return "No equation lost its structure; evaluating the function costs more than its Jacobian."
        if "dense" in report.structure or not report.structure:
            return "No equation lost its structure; most of the work makes the array of the result."
        return (
            "No equation lost its structure; most of the work makes the array, which symjac.linearize does not need: "
            "it keeps the structure for products and solves."
        )
    assert worst is not None
    return f"No equation lost its structure; most of the work is `{worst.primitive}`{_at(worst)}."


def _about_fallback(row: Row, basis: int) -> str:
    if row.fallback == "no rule":
        return (
            f"`{row.primitive}`{_at(row)} has no structural rule, so that {basis} directions are pushed through it: "
            "give it one with symjac.register, or write it with operations that have one."
        )
    return (
        f"The rule of `{row.primitive}`{_at(row)} declined ({', '.join(row.before)}), so that {basis} directions are "
        "pushed through it: write it so that the operand is simpler, or an array."
    )


def _about_join(row: Row) -> str:
    if "joined" in row.notes:
        return (
            f"At `{row.primitive}`{_at(row)} terms that differ in structure became one array: return them as separate "
            "outputs, or add them in another order, if they need not meet."
        )
    if "along an axis" in row.notes:
        return f"`{row.primitive}`{_at(row)} acts along an axis that had structure, which is dense from there on."
    return f"`{row.primitive}`{_at(row)} reads positions that the structure cannot follow, and is dense from there on."


def _at(row: Row) -> str:
    return f" ({row.place})" if row.place else ""
