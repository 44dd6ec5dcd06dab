"""A SuperLink and SuperNodes on the loopback: real processes, each in a session of its own, ended by their group."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flower_certificates import certificates, node_key

BIN = Path(sys.executable).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "OMP_NUM_THREADS": "1",
    "NO_COLOR": "1",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: str, ready: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, f"{what}: not within {seconds:g} s"
        time.sleep(0.2)


def summary(folder: Path) -> dict[str, Any]:
    """What a run's folder says of it so far; {} before it says anything."""
    path = folder / "summary.json"
    return json.loads(path.read_text()) if path.exists() else {}


def records(folder: Path) -> list[dict[str, Any]]:
    path = folder / "records.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@dataclass
class Link:
    """A SuperLink on a free port of the loopback, its nodes, and the `flwr` command that speaks to it."""

    home: Path
    tls: bool = False
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        home = self.home / name
        home.mkdir(parents=True, exist_ok=True)
        with open(home / "log.txt", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=home,
                start_new_session=True,
                env={
                    **os.environ,
                    **QUIET,
                    "FLWR_HOME": str(home / "flwr"),
                    "PATH": f"{BIN}:{os.environ['PATH']}",
                },
            )
        return self.processes[name]

    def log(self, name: str) -> str:
        return (self.home / name / "log.txt").read_text(errors="replace")

    def serve(self, *more: str) -> None:
        security = self.certificates() if self.tls else ["--insecure"]
        self.start(
            "link",
            ["flower-superlink", *security, "--host", "127.0.0.1", "--port", str(self.port),
             "--disable-runtime-dependency-installation", *more],
        )  # fmt: skip
        wait_for("SuperLink", self._listening, 60)
        link = f'[superlink.dep]\naddress = "127.0.0.1:{self.port}"\n'
        link += f'root-certificates = "{self.home}/ca.crt"\n' if self.tls else "insecure = true\n"
        (self.home / "cli" / "flwr").mkdir(parents=True, exist_ok=True)
        (self.home / "cli" / "flwr" / "config.toml").write_text(link)

    def _listening(self) -> bool:
        assert self.processes["link"].poll() is None, self.log("link")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def node(self, name: str, config: str, *more: str) -> subprocess.Popen[bytes]:
        security = ["--root-certificates", f"{self.home}/ca.crt"] if self.tls else ["--insecure"]
        return self.start(
            name,
            ["flower-supernode", *security, "--superlink", f"127.0.0.1:{self.port}", "--port", str(free_port()),
             "--node-config", config, *more],
        )  # fmt: skip

    def flwr(self, *words: str, seconds: float = 120) -> str:
        home = self.home / "cli"
        done = subprocess.run(
            [str(BIN / "flwr"), *words],
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=home,
            env={**os.environ, **QUIET, "FLWR_HOME": str(home / "flwr"), "COLUMNS": "300"},
        )
        assert done.returncode == 0, f"flwr {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(self, app: Path, overrides: str) -> int:
        """Submit a run; its id."""
        said = self.flwr(
            "run", str(app), "dep", "--run-config", f'overrides="{overrides}"', "--format", "json"
        )
        return int(json.loads(said[said.index("{") :])["run-id"])

    def end(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a process with all it started: its whole group."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        process.wait(20)

    def close(self) -> None:
        for name in list(self.processes):
            self.end(name)

    def certificates(self) -> list[str]:
        """A certificate authority and a server certificate for 127.0.0.1, made on the spot."""
        certificates(self.home)
        return ["--ssl-ca-certfile", f"{self.home}/ca.crt", "--ssl-certfile", f"{self.home}/server.crt",
                "--ssl-keyfile", f"{self.home}/server.key"]  # fmt: skip

    def authenticated(self, name: str, config: str) -> subprocess.Popen[bytes]:
        """A node with a key of its own that the operator has registered."""
        private, public = node_key(self.home, name)
        self.flwr("supernode", "register", str(public), "dep")
        return self.node(name, config, "--auth-supernode-private-key", str(private))

    def left(self, word: str = "") -> list[int]:
        """Processes still there of all that was ever started from here (and have `word` in their command).

        Flower puts apps into sessions of their own; the home they were given tells whose they are.
        """
        mine = f"FLWR_HOME={self.home}/".encode()
        found = [p for p in Path("/proc").iterdir() if p.name.isdigit() and mine in content(p / "environ")]
        return [int(p.name) for p in found if word.encode() in content(p / "cmdline") and alive(p)]

    def kill(self, word: str) -> None:
        """kill -9 of the processes with this word in their command."""
        for pid in self.left(word):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def alive(process: Path) -> bool:
    return b") Z " not in content(process / "stat")
