"""llama.cpp's server in this process and in a child, and what the two say to each other."""

import http.client
import json
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict, replace

import pytest

from contextpilot_core.errors import ConfigError
from contextpilot_integrations.serving.local.model import packaged_model
from contextpilot_integrations.serving.local.server import HOST, ChildServer, InProcessServer, Settings
from tests.conftest import require_local_model

require_local_model()

CHILD = [sys.executable, "-m", "contextpilot_integrations.serving.local"]


@pytest.fixture(scope="module")
def settings():
    path = str(packaged_model())
    return Settings(model=path, name="small", port=0, slots=1, context_size=256, threads=1, cache_ram_mib=0)


def models(port):
    with closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
        connection.request("GET", "/v1/models")
        return [entry["id"] for entry in json.load(connection.getresponse())["data"]]


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((HOST, port)) == 0


@pytest.fixture(params=[InProcessServer, ChildServer], ids=["in-process", "child"])
def kind(request):
    return request.param


def test_it_serves_on_a_free_port_restarts_there_and_is_gone_when_it_is_closed(kind, settings):
    server = kind(settings)
    port = server.port
    assert port > 0 and models(port) == ["small"]
    server.restart()
    assert server.port == port and models(port) == ["small"]
    server.close()
    assert not listens(port)
    server.close()


def test_what_llama_cpp_cannot_serve_is_refused_with_what_to_look_at(kind, settings, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and nothing else")
    with pytest.raises(ConfigError, match="broken.gguf on port 0 with slots=1, context_size=256: .* give another file"):
        kind(replace(settings, model=str(broken)))


def test_a_port_that_is_taken_is_refused(kind, settings):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"on port {port} .* the port free"):
            kind(replace(settings, port=port))


def test_a_child_that_has_ended_is_told_from_one_that_serves(settings):
    server = ChildServer(settings)
    server._child.kill()
    server._child.wait()
    assert not listens(server.port)
    with pytest.raises(ConfigError, match="llama.cpp's process has ended; make a new LocalEngine"):
        server.restart()
    server.close()
    server.close()


def test_each_line_starts_the_server_again_an_error_ends_nothing_and_the_end_of_the_lines_all(settings, tmp_path):
    child = subprocess.Popen(CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def tell(given):
        child.stdin.write(json.dumps(asdict(given)) + "\n")
        child.stdin.flush()
        return json.loads(child.stdout.readline())

    port = tell(settings)["port"]
    assert models(port) == ["small"]
    assert tell(replace(settings, port=port, name="other")) == {"port": port}
    assert models(port) == ["other"]
    answer = tell(replace(settings, model=str(tmp_path / "absent.gguf")))
    assert list(answer) == ["error"] and "absent.gguf" in answer["error"]
    assert not listens(port), "the one before was stopped"
    assert models(tell(settings)["port"]) == ["small"]
    output, errors = child.communicate(timeout=60)
    assert (child.returncode, output) == (0, "")
    assert "Traceback" not in errors
