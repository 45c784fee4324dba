"""A real Redis server of the test's own: started, killed and started again."""

import shutil
import socket
import subprocess
import time
from pathlib import Path

import redis

from tests.conftest import absent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RedisServer:
    """``folder`` keeps its data over `kill` and `start`; `wipe` loses them."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self._program = shutil.which("redis-server")
        if self._program is None:
            absent("redis-server is not installed (Debian: apt-get install redis-server)")
        self._folder = folder
        self.port = free_port()
        self._host = host
        self.url = f"redis://[{host}]:{self.port}" if ":" in host else f"redis://{host}:{self.port}"
        self.client = redis.Redis.from_url(self.url)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = f"--bind {self._host} --port {self.port} --dir {self._folder} --save  --appendonly yes".split(" ")
        self._process = subprocess.Popen([self._program, *options], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                if self.client.ping():
                    return
            except redis.ConnectionError:
                time.sleep(0.02)
        raise TimeoutError("redis-server did not answer within 20 s")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wipe(self) -> None:
        for path in self._folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def close(self) -> None:
        self.client.close()
        self.kill()
