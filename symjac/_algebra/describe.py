"""Words for structures."""

from __future__ import annotations

from typing import Any

from symjac._algebra.tangent import StructuredTangent, Term


def describe(value: Any) -> str:
    """A few words for an operand or a result: its structure with respect to each input leaf."""
    if not isinstance(value, StructuredTangent):
        return "array"
    return " | ".join(describe_terms(block) for block in value.blocks)


def describe_terms(terms: tuple[Term, ...]) -> str:
    """A few words for a sum of terms."""
    if not terms:
        return "zero"
    words = [describe_term(term) for term in terms]
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    return " + ".join(word if count == 1 else f"{count} x {word}" for word, count in counts.items())


def describe_term(term: Term) -> str:
    """A few words for one term."""
    out_labels = {label for axis in term.out_axes for label in axis.labels}
    in_labels = {label for axis in term.in_axes for label in axis.labels}
    shared, either = out_labels & in_labels, out_labels | in_labels
    carried = {label for factor in term.factors for label in factor.labels}
    plain = all(axis.is_plain for axis in term.axes)
    if shared and shared == either:
        if plain and term.out_axes == term.in_axes:
            return "diagonal" if carried else ("scaled identity" if term.factors else "identity")
        return "weighted selection" if term.factors else "selection"
    if not either:
        return "one entry"
    if shared:
        return f"blocks ({len(shared)} shared, {len(either - shared)} dense)"
    if not any({*f.labels} & out_labels and {*f.labels} & in_labels for f in term.factors) and not term.is_pending:
        return "rank one"
    return "product" if term.is_pending else "dense"
