"""Makes a failing program smaller while it fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from .program import Block, Input, Line, Program


def shrink(program: Program, fails: Callable[[Program], bool], budget: int = 400) -> Program:
    """The smallest program found that still fails, within a number of attempts."""
    changed = True
    while changed and budget > 0:
        changed = False
        for candidate in _candidates(program):
            budget -= 1
            if budget <= 0:
                break
            if _still_fails(candidate, fails):
                program, changed = candidate, True
                break
    return program


def _still_fails(candidate: Program, fails: Callable[[Program], bool]) -> bool:
    try:
        return fails(candidate)
    except Exception:
        return False


def _candidates(program: Program) -> Iterator[Program]:
    """Smaller programs, the most promising ones first."""
    size = _size(program)
    for candidate in _all_candidates(program):
        candidate = _without_idle_inputs(candidate.pruned())
        if _size(candidate) < size:
            yield candidate


def _size(program: Program) -> tuple[int, int, int]:
    return len(program.lines), len(program.source()), len(program.inputs)


def _all_candidates(program: Program) -> Iterator[Program]:
    targets = list(program.variables())
    for target in targets:
        if target != program.result:
            yield replace(program, result=target)
    for target in re.findall(r"\b[xv]\d+\b", program.result):
        if target != program.result:
            yield replace(program, result=target)
    for i, line in enumerate(program.lines):
        text = _constant(line)
        if text is not None and line.text != text:
            yield _with_line(program, i, replace(line, text=text, blocks=()))
            yield _as_input(program, i, text)
        for name in sorted(line.uses()):
            yield _with_line(program, i, replace(line, text=name, blocks=()))
        for block in _smaller_blocks(line):
            yield _with_line(program, i, replace(line, blocks=block))
    if isinstance(program.argnums, tuple):
        for i in program.argnums:
            yield replace(program, argnums=i)


def _constant(line: Line) -> str | None:
    found = re.fullmatch(r"(~?)(\w+)\[([\d,]*)\](.*)", line.signature.replace("ShapedArray(", "").rstrip(")"))
    names = {"f": "float", "bf": "bfloat", "c": "complex"}
    kind = found and re.fullmatch(r"(bf|f|c|float|bfloat|complex)(\d+)", found[2])
    if found is None or not kind:
        return None
    shape = tuple(int(n) for n in found[3].split(",") if n)
    return f"const(7, {shape}, '{names.get(kind[1], kind[1])}{kind[2]}')"


def _with_line(program: Program, i: int, line: Line) -> Program:
    return replace(program, lines=(*program.lines[:i], line, *program.lines[i + 1 :]))


def _as_input(program: Program, i: int, text: str) -> Program:
    """The result of a line becomes the only input that is differentiated."""
    name = f"x{90 + len(program.inputs)}"
    moved = _with_line(program, i, replace(program.lines[i], text=name, blocks=()))
    return replace(moved, inputs=(*program.inputs, Input(name, text)), argnums=len(program.inputs))


def _smaller_blocks(line: Line) -> Iterator[tuple[Block, ...]]:
    for i, block in enumerate(line.blocks):
        for smaller in _smaller(block):
            yield (*line.blocks[:i], smaller, *line.blocks[i + 1 :])


def _smaller(block: Block) -> Iterator[Block]:
    for i, inner in enumerate(block.lines):
        names = [*block.params, *(other.target for other in block.lines[:i])]
        for name in sorted(inner.uses() & set(names)) or names:
            changed = replace(inner, text=name, blocks=())
            yield _pruned(replace(block, lines=(*block.lines[:i], changed, *block.lines[i + 1 :])))
        for blocks in _smaller_blocks(inner):
            changed = replace(inner, blocks=blocks)
            yield replace(block, lines=(*block.lines[:i], changed, *block.lines[i + 1 :]))
    pruned = _pruned(block)
    if len(pruned.lines) < len(block.lines):
        yield pruned


def _pruned(block: Block) -> Block:
    needed = set(re.findall(r"\b[xvp]\d+\b", block.result))
    kept = []
    for line in reversed(block.lines):
        if line.target in needed:
            kept.append(line)
            needed |= line.uses()
    return replace(block, lines=tuple(reversed(kept)))


def _without_idle_inputs(program: Program) -> Program:
    """Drops the inputs that nothing reads and that are not differentiated."""
    used = set(re.findall(r"\bx\d+\b", program.source().split("\n", 1)[1]))
    argnums = program.argnums if isinstance(program.argnums, tuple) else (program.argnums,)
    kept = [i for i, entry in enumerate(program.inputs) if entry.name in used or i in argnums]
    places = tuple(kept.index(i) for i in argnums)
    inputs = tuple(program.inputs[i] for i in kept)
    return replace(program, inputs=inputs, argnums=places if isinstance(program.argnums, tuple) else places[0])
