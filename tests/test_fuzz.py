"""Short runs of the fuzzer and of the sweep; `make fuzz` and `make sweep` do long ones."""

import zlib
from random import Random

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.fuzz import operations  # noqa: F401
from tests.fuzz.builder import build
from tests.fuzz.compare import compare, is_rounding, transforms_for
from tests.fuzz.settings import settings
from tests.sweep.run import run
from tests.sweep.table import calls

pytestmark = pytest.mark.fallback
SHARE = 150  # one call in so many


def check(random, depth, compiled=False):
    with settings():
        program = build(random, random.randint(1, depth))
        for transform in transforms_for(program, random):
            outcome = compare(program, transform, compiled=compiled)
            is_wrong = outcome.failed and not is_rounding(program, outcome)
            assert not is_wrong, f"{transform}: {outcome.message}\n{program.script()}"


@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed):
    for i in range(15):
        check(Random(1000 * seed + i), depth=12)


def test_random_programs_run_as_by_a_user():
    for i in range(2):
        check(Random(10_000 + i), depth=6, compiled=True)


@hypothesis.settings(max_examples=10, deadline=None, derandomize=True, database=None)
@hypothesis.given(st.randoms(use_true_random=True))
def test_random_programs_of_hypothesis(random):
    check(random, depth=8)


def test_a_share_of_the_sweep():
    chosen = [call for call in calls() if zlib.crc32(call.name.encode()) % SHARE == 0]
    assert len(chosen) > 30
    with settings():
        results = {call.name: run(call) for call in chosen}
    wrong = {name: result for name, result in results.items() if result not in ("same", "both raise")}
    assert not wrong
