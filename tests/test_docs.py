"""Every code block of the documentation runs as it stands, page by page, and the commands that it names exist."""

import doctest
import re
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    text = page.read_text()
    return [(text[: m.start(2)].count("\n"), m[2]) for m in BLOCK.finditer(text) if m[1] == language]


@pytest.fixture
def default_settings():
    """Readers have JAX's default settings."""
    names = ("jax_numpy_dtype_promotion", "jax_numpy_rank_promotion")
    saved = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    jax.config.update("jax_numpy_rank_promotion", "allow")
    yield
    for name, value in saved.items():
        jax.config.update(name, value)


@pytest.mark.fallback
@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_code_blocks_run(page, default_settings):
    names = {"__name__": "__main__"}
    for line, code in blocks(page, "python"):
        if ">>>" in code:
            test = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), line)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            report = []
            runner.run(test, out=report.append, clear_globs=False)
            assert runner.summarize(verbose=False).failed == 0, "".join(report)
            names.update(test.globs)
        else:
            exec(compile("\n" * line + code, str(page), "exec"), names)


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_commands_and_links_exist(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for _, code in blocks(page, "sh"):
        for target in re.findall(r"^make (\w[\w-]*)", code, re.MULTILINE):
            assert target in targets, target
    for link in re.findall(r"\]\(([^)#:]+?)\)", BLOCK.sub("", page.read_text())):
        assert (page.parent / link).exists(), link


def test_every_public_name_is_in_the_reference():
    import symjac

    listed = set(re.findall(r"^::: symjac\.(\w+)$", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE))
    assert listed == set(symjac.__all__)


def test_contributing_lists_every_file():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    files = [file.relative_to(ROOT).as_posix() for file in sorted((ROOT / "symjac").rglob("*.py"))]
    assert [file for file in files if not file.endswith("__.py") and f"`{file}`" not in text] == []
