"""A federation of real processes on this machine: a SuperLink, SuperNodes, and runs started by `flwr run`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    "FEDAX_OFFLINE": "1",
    "FEDAX_DEVICES": "1",
    "FEDAX_COMPILE_CACHE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Federation:
    """One SuperLink and its SuperNodes, each the leader of a session: killing it kills all of it.

    keys: a folder that `fedax flower keys` made: TLS, and nodes that are known by their keys.
    """

    def __init__(self, folder: Path, *, kept: bool = True, simulated: bool = False, keys: Path | None = None) -> None:
        self.folder, self.port, self.kept, self.simulated = folder, free_port(), kept, simulated
        self.keys, self.host = keys, "127.0.0.1" if keys is None else "localhost"
        self.env = {**os.environ, **QUIET, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        self.env |= {"FLWR_HOME": str(folder / "flwr"), "FEDAX_CACHE": str(folder / "cache")}
        self.nodes: dict[int, list[subprocess.Popen]] = {}
        self.link: subprocess.Popen | None = None
        (folder / "flwr").mkdir(parents=True)
        trust = "insecure = true" if keys is None else f'root-certificates = "{keys / "ca.crt"}"'
        config = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.host}:{self.port}"\n{trust}\n'
        (folder / "flwr" / "config.toml").write_text(config)

    def __enter__(self) -> Federation:
        self.start_link()
        return self

    def __exit__(self, *_: object) -> None:
        for client in list(self.nodes):
            self.kill_node(client)
        self.kill_link()

    def _start(self, name: str, *command: str) -> subprocess.Popen:
        with (self.folder / f"{name}.log").open("a") as log:
            return subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.env,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start_link(self) -> None:
        options = ("--disable-runtime-dependency-installation", "--host", "127.0.0.1")
        if self.keys is None:
            options += ("--insecure",)
        else:
            files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
            options += tuple(word for name, file in files.items() for word in (name, str(self.keys / file)))
            options += ("--enable-supernode-auth",)
        options += ("--simulation",) * self.simulated
        self.link = self._start("link", "flower-superlink", *options, "--port", str(self.port))
        self._wait(self._listens, 120, "the SuperLink does not listen")
        for key in sorted(self.keys.glob("node-*.pub")) if self.keys else []:
            self._flwr("supernode", "register", str(key))

    def _listens(self) -> bool:
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", self.port)) == 0

    def start_node(self, client: int, **config: object) -> None:
        config = {"partition-id": client, "states": str(self.folder / "states"), **config}
        said = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        port = str(free_port())
        address = ("--superlink", f"{self.host}:{self.port}", "--host", "127.0.0.1", "--port", port)
        trust = ("--insecure",)
        if self.keys is not None:
            key = str(self.keys / f"node-{client}.key")
            trust = ("--root-certificates", str(self.keys / "ca.crt"), "--auth-supernode-private-key", key)
        how = ("--isolation", "process" if self.kept else "subprocess")
        options = (*trust, *address, *how, "--node-config", said)
        self.nodes[client] = [self._start(f"node{client}", "flower-supernode", *options)]
        if self.kept:
            self.nodes[client].append(self._start(f"node{client}", "fedax", "flower", "worker", f"127.0.0.1:{port}"))

    def freeze_node(self, client: int, frozen: bool = True) -> None:
        """Stop a client's work, or let it go on."""
        os.killpg(self.nodes[client][-1].pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def kill_node(self, client: int) -> None:
        for process in self.nodes.pop(client):
            _kill(process)

    def kill_link(self) -> None:
        if self.link is not None:
            _kill(self.link)
        for _ in range(100):  # what one of them was about to start is found the next time
            if not (left := self.processes()):
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def kill_server(self) -> None:
        """Kill the ServerApp alone; it is a process of a session that the SuperLink's executor began."""
        for pid in self.server_apps():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Everything that was started for this federation, by whomever: all have its folder in their environment."""
        mark, found = f"FLWR_HOME={self.folder / 'flwr'}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0") and not _is_zombie(path.parent):
                    found.append(int(path.parent.name))
        return found

    def server_apps(self) -> list[int]:
        """The processes of its ServerApps."""
        found = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if any(word.endswith((b"flwr-serverapp", b"flwr-simulation")) for word in words):
                    found.append(pid)
        return found

    def run(self, app: Path, *, nodes: int | None = None, **config: object) -> None:
        """Start a run, in a simulation with a number of nodes; it goes on by itself."""
        many = () if nodes is None else ("--federation-config", f"num-supernodes={nodes}")
        said = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in config.items())
        self._flwr("run", str(app), "here", "--run-config", said, *many)

    def _flwr(self, *words: str) -> None:
        done = subprocess.run(
            [str(BIN / "flwr"), *words],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def reach(self, out: Path, round: int, limit: float = 600) -> None:
        """Wait until a run has done this number of rounds."""
        self._wait(lambda: status(out)["round"] >= round, limit, f"{out} does not reach round {round}")

    def finish(self, out: Path, limit: float = 600) -> None:
        """Wait for a run's end."""
        self._wait(lambda: status(out)["status"] not in ("running", "unknown"), limit, f"{out} does not end")
        assert status(out)["status"] == "finished", status(out)

    def _wait(self, ready, limit: float, why: str) -> None:
        end = time.monotonic() + limit
        while not ready():
            if time.monotonic() > end:
                logs = "\n".join(f"== {p.name}\n{p.read_text()[-3000:]}" for p in sorted(self.folder.glob("*.log")))
                raise AssertionError(f"{why}\n{logs}")
            time.sleep(0.1)


def _is_zombie(process: Path) -> bool:
    return ") Z " in (process / "stat").read_text()


def status(out: Path) -> dict:
    try:
        return json.loads((out / "status.json").read_text())
    except (OSError, ValueError):
        return {"status": "unknown", "round": -1}


def cohorts_of(log: str) -> list[list[int]]:
    """The clients whose answers each round used, by a run's log; of a round that was done twice, the last time.

    >>> cohorts_of("round 1: 2 answers, clients 0, 1; round 2: 1 answers, clients 0; round 2: 1 answers, clients 1;")
    [[0, 1], [1]]
    """
    found = re.findall(r"round (\d+): \d+ answers, clients ([\d, ]+)", log)
    used = {int(round): [int(client) for client in clients.split(", ")] for round, clients in found}
    return [used[round] for round in sorted(used)]


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
