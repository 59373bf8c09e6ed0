"""Runs the test suite on the oldest supported JAX and on the newest one that a Python of this machine can install.

Each target has an environment of its own under `.venvs/`, made when it is missing or older than `pyproject.toml`.
It uses the standard library only, so that any Python 3.11 or newer can start it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ((3, 11), (3, 12), (3, 13))
REPORT_PYTHON = "import sys; print(*sys.version_info[:2])"
REPORT_JAX = "import jax; print(jax.__version__)"


def candidates(version: tuple[int, int]) -> Iterator[Path]:
    """Yields the places where a Python of this version may be, the one that runs this script first."""
    name = "python{}.{}".format(*version)
    if sys.version_info[:2] == version:
        yield Path(sys.executable)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield Path(folder) / name
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/*/bin/{name}"), reverse=True)
    for folder in ("/usr/local/bin", "/usr/bin"):
        yield Path(folder) / name


def find_python(version: tuple[int, int]) -> Path | None:
    """Returns a Python of this version that runs and can make an environment (a shim may do neither), or None."""
    for path in candidates(version):
        if path.is_file() and output(path, f"import ensurepip, venv; {REPORT_PYTHON}") == "{} {}".format(*version):
            return path
    return None


def output(python: Path, code: str) -> str | None:
    """Returns what `python -c code` prints, or None where it does not run."""
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def floor_requirements() -> list[str]:
    """Returns the oldest JAX that `pyproject.toml` allows, as pip requirements."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pattern = re.compile(r"(jax|jaxlib)>=([\w.]+)$")
    return [f"{match[1]}=={match[2]}" for match in map(pattern.match, dependencies) if match]


def environment(target: str, python: Path, requirements: Sequence[str]) -> Path:
    """Makes the environment of a target, unless it is there and up to date, and returns its Python."""
    folder = ROOT / ".venvs" / target
    stamp, inner = folder / ".stamp", folder / "bin" / "python"
    key = f"{python}\n{(ROOT / 'pyproject.toml').read_text()}"
    if not (stamp.is_file() and stamp.read_text() == key):
        run(python, "-m", "venv", "--clear", folder)
        run(inner, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
        run(inner, "-m", "pip", "install", "--quiet", "--editable", ".", "--group", "test", *requirements)
        stamp.write_text(key)
    return inner


def run(*command: str | Path) -> None:
    """Runs a command in the repository root, showing it first.

    Raises:
        SystemExit: with the command's exit status, where it fails.
    """
    words = [str(word) for word in command]
    print("+", shlex.join(words), flush=True)
    status = subprocess.run(words, cwd=ROOT, check=False).returncode
    if status:
        sys.exit(status)


def main() -> None:
    """Runs the suite on each target in turn, and stops at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="+", choices=("floor", "newest"))
    parser.add_argument("--workers", default="2", help="processes of pytest-xdist")
    parser.add_argument("--pytest", default="", help="options for pytest, in one string")
    parser.add_argument("--beyond", type=Path, help="a Python: skip a target whose JAX this one already has")
    options = parser.parse_args()
    pythons = [python for python in map(find_python, VERSIONS) if python]
    if not pythons:
        sys.exit("no Python 3.11 to 3.13 found on this machine")
    for target in options.targets:
        if target == "floor":
            python = environment(target, pythons[0], floor_requirements())
        else:
            python = environment(target, pythons[-1], ())
        version = output(python, REPORT_JAX)
        if options.beyond and version == output(options.beyond, REPORT_JAX):
            print(f"{target}: no Python here installs another JAX than {version}, which {options.beyond} has: skipped")
            continue
        print(f"{target}: JAX {version}, Python {output(python, REPORT_PYTHON)}", flush=True)
        run(python, "-m", "pytest", "-n", options.workers, *shlex.split(options.pytest))


if __name__ == "__main__":
    main()
