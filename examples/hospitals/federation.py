"""Three hospitals and a server on this machine, over TLS and with keys, from nothing to the report: `make federation`.

What runs here as processes runs in earnest on four machines, with the same commands; see docs/deploy.md. Everything
that is made is in one new directory, and everything that is started is stopped, however it ends.
"""

import argparse
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

import jax
import numpy as np
from prepare import main as prepare

import fedax
from fedax.errors import FedaxError
from fedax.flower import require
from fedax.flower.certificates import check, handshake, make
from fedax.runs.files import fresh

HERE = Path(__file__).parent
PROGRAMS = Path(sys.executable).parent
SITES = 3
FLOWER = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",  # seconds between two looks for work
}


class Processes:
    """What was started, each in a session of its own, so that its children end with it; logs are in one directory."""

    def __init__(self, logs, environment):
        self.logs, self.environment, self.running = logs, environment, {}

    def start(self, name, *command):
        """Start a program; its output goes to its log."""
        with (self.logs / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [str(word) for word in command],
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.logs,
                start_new_session=True,
            )

    def call(self, *command):
        """Run a program to its end."""
        told = subprocess.run(
            [str(word) for word in command], env=self.environment, cwd=self.logs, capture_output=True, text=True
        )
        if told.returncode:
            raise FedaxError(f"{Path(command[0]).name} failed: {' '.join((told.stdout + told.stderr).split())}")
        return told.stdout

    def check(self):
        """Raise if something has ended that should run."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise FedaxError(f"{name} ended with code {process.returncode}: see {self.logs / name}.log")

    def stop(self):
        """Stop everything, the last first."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self.running.values()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, how)
            for process in self.running.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=10)


def free_ports(count):
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


def wait(processes, done, seconds, what):
    """Wait until something is so, while everything runs."""
    end = time.monotonic() + seconds
    while not done():
        processes.check()
        if time.monotonic() > end:
            raise FedaxError(f"{what} after {seconds} s: see {processes.logs}")
        time.sleep(0.2)


def start_superlink(processes, keys, port):
    """The SuperLink, with TLS and authentication, and the nodes' public keys told to it."""
    certificates = "--ssl-ca-certfile", keys / "ca.crt", "--ssl-certfile", keys / "server.crt"
    where = "--ssl-keyfile", keys / "server.key", "--host", "127.0.0.1", "--port", port
    how = "--enable-supernode-auth", "--disable-runtime-dependency-installation"
    processes.start("superlink", PROGRAMS / "flower-superlink", *certificates, *where, *how)

    def answers():
        with contextlib.suppress(FedaxError):
            return handshake(keys, f"localhost:{port}")

    wait(processes, answers, 120, "the SuperLink does not answer")
    for number in range(SITES):
        said = processes.call(PROGRAMS / "flwr", "supernode", "register", keys / f"node-{number}.pub")
        found = re.search(r"SuperNode (\d+) registered", said)
        print(f"site {number} is node {found[1] if found else '?'}")


def start_site(processes, number, keys, folder, link, port):
    """A SuperNode with its key and the path of its rows, and the process that keeps its rows and programs."""
    address = "--superlink", f"localhost:{link}", "--root-certificates", keys / "ca.crt"
    own = "--auth-supernode-private-key", keys / f"node-{number}.key", "--host", "127.0.0.1", "--port", port
    config = {
        "partition-id": number,
        "rows": str(folder / "data" / f"site-{number}.npz"),
        "states": str(folder / "states"),
    }
    said = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
    supernode = PROGRAMS / "flower-supernode"
    processes.start(f"site-{number}", supernode, *address, *own, "--isolation", "process", "--node-config", said)
    worker = sys.executable, "-m", "fedax", "flower", "worker", f"127.0.0.1:{port}"
    processes.start(f"site-{number}-worker", *worker)


def follow(processes, run):
    """Print what the server says of the network until the run has ended; how it ended."""
    said, shown = run / "network.log", 0

    def status():
        nonlocal shown
        lines = said.read_text().splitlines() if said.exists() else []
        for line in lines[shown:]:
            print(" ", line, flush=True)
        shown = len(lines)
        with contextlib.suppress(OSError, ValueError):
            about = json.loads((run / "status.json").read_text())
            return about if about["status"] != "running" else None

    wait(processes, status, 900, "the run has not ended")
    return status()


def compare(folder):
    """The simulation of the same experiment, its report beside the federation's, and how far the models are apart."""
    command = sys.executable, "-m", "fedax"
    simulated = folder / "simulation"
    run = *command, "run", HERE / "experiment.toml", "--out", simulated, "--quiet"
    subprocess.run(run, cwd=folder / "data", check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*command, "report", folder / "run"], check=True)
    over, alone = (fedax.load(path).model for path in (folder / "run", simulated))
    flat = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)]) for model in (over, alone)]
    return float(np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1]))


def federate(folder):
    """Everything, in a new folder."""
    print(f"{folder}: {prepare(folder / 'data')}")
    (folder / "logs").mkdir()
    link, *ports = free_ports(1 + SITES)
    keys = folder / "keys"
    make(keys, SITES, port=link)
    for line in check(keys, "localhost"):
        print(line)
    path = f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', '')}"
    processes = Processes(folder / "logs", {**os.environ, **FLOWER, "FLWR_HOME": str(keys / "flwr"), "PATH": path})
    try:
        start_superlink(processes, keys, link)
        for number, port in enumerate(ports):
            start_site(processes, number, keys, folder, link, port)
        processes.call(PROGRAMS / "flwr", "run", HERE, "--run-config", f"out={json.dumps(str(folder / 'run'))}")
        ended = follow(processes, folder / "run")
    finally:
        processes.stop()
    if ended["status"] != "finished":
        raise FedaxError(f"the run has {ended['status']}: {ended['message']}")
    apart = compare(folder)
    last = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    print(
        f"Test accuracy {last['test_accuracy']:.4f}, density {last['density']:.2f}, {last['seconds']:.1f} s of rounds."
    )
    print(f"The simulation of the same is {apart:.1e} away, relative to its norm.")
    print(f"Report: {folder / 'run' / 'report.html'}")


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description="A federation of three hospitals on this machine.")
    parser.add_argument("--out", type=Path, help="a new directory; default runs/hospitals")
    folder = (parser.parse_args().out or fresh(Path("runs"), "hospitals")).resolve()
    try:
        require()
        if folder.exists():
            raise FedaxError(f"--out is {str(folder)!r}: it must be a new directory")
        federate(folder)
    except (FedaxError, KeyboardInterrupt) as error:
        sys.exit(f"error: {str(error) or 'interrupted'}")


if __name__ == "__main__":
    main()
