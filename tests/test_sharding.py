"""Sharded arrays keep their shards: on eight virtual devices of one process, and on those of two."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).with_name("sharded_programs.py")
NAMES = re.findall(r"@check\ndef (\w+)", SCRIPT.read_text())
NEEDS_ONE_PROCESS = {"explicit_sharding_works"}


def launch(arguments, **variables):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **variables}
    environment["PYTHONPATH"] = os.pathsep.join([str(SCRIPT.parent.parent), environment.get("PYTHONPATH", "")])
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def results_of(process):
    out, error = process.communicate(timeout=300)
    found = re.search(r"RESULTS(\{.*\})", out)
    assert found, error[-2000:]
    return json.loads(found[1])


@pytest.fixture(scope="module")
def one_process():
    return results_of(launch([]))


@pytest.fixture(scope="module")
def two_processes():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    started = [launch([str(rank)], SHARDED_PROCESSES="2", SHARDED_ADDRESS=address) for rank in range(2)]
    return [results_of(process) for process in started]


@pytest.mark.parametrize("name", NAMES)
def test_on_eight_devices(one_process, name):
    assert one_process[name] == ""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NEEDS_ONE_PROCESS])
def test_on_two_processes(two_processes, name):
    for results in two_processes:
        assert results[name] == ""
