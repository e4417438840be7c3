"""Certificates and keys: what is checked before a start, what a node finds, real processes; secure aggregation."""

from __future__ import annotations

import contextlib
import copy
import datetime
import io
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity

from fedax.cli.app import invoke
from fedax.errors import FedaxError
from fedax.flower.certificates import check, handshake, make, renew
from fedax.flower.secure_aggregation import Mean, content, veil

DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "keys"
    make(folder, 2, ["fed.example.org", "10.1.2.3"])
    return folder


@pytest.fixture
def keys(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "keys"))


def certify(folder: Path, begin: int, end: int, name: str = "localhost") -> None:
    """Put a server certificate with other dates (in days from now) into a folder, signed by its authority."""
    authority = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    key = serialization.load_pem_private_key((folder / "server.key").read_bytes(), None)
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())  # type: ignore[arg-type]
        .serial_number(1)
        .not_valid_before(now + begin * DAY)
        .not_valid_after(now + end * DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)  # type: ignore[arg-type]
        .sign(authority, hashes.SHA384())  # type: ignore[arg-type]
    )
    (folder / "server.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def expired(folder: Path) -> None:
    certify(folder, -3, -1)


def early(folder: Path) -> None:
    certify(folder, 1, 3)


def another_key(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "server.key").write_bytes(key.private_bytes(*pem))


def another_authority(folder: Path) -> None:
    make(folder.with_name("other"), 1)
    shutil.copy(folder.with_name("other") / "ca.crt", folder / "ca.crt")


def same_node_twice(folder: Path) -> None:
    for end in ("key", "pub"):
        shutil.copy(folder / f"node-0.{end}", folder / f"node-1.{end}")


def another_public(folder: Path) -> None:
    shutil.copy(folder / "node-0.pub", folder / "node-1.pub")


def wrong_kind(folder: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    (folder / "node-0.key").write_bytes(key.private_bytes(*form))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (expired, "server.crt expired on .* UTC: `fedax flower keys DIR --renew` makes a new one"),
        (early, "server.crt is valid only from .* clock"),
        (another_key, "server.crt does not belong to server.key"),
        (another_authority, "server.crt is not signed by ca.crt"),
        (same_node_twice, "node-1 and node-0 have the same key"),
        (another_public, "node-1.pub does not belong to node-1.key"),
        (wrong_kind, "node-0.key is not an elliptic key"),
        (lambda folder: (folder / "ca.crt").unlink(), "ca.crt is missing"),
        (lambda folder: (folder / "server.key").unlink(), "server.key is missing"),
        (lambda folder: (folder / "server.crt").write_text("nothing"), "server.crt cannot be read as a certificate"),
        (lambda folder: (folder / "node-1.key").chmod(0o644), "node-1.key can be read by others .*: chmod 600"),
    ],
)
def test_what_is_wrong_gets_one_sentence(keys: Path, spoil: Callable[[Path], object], words: str) -> None:
    spoil(keys)
    with pytest.raises(FedaxError) as caught:
        check(keys)
    assert re.search(words, str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_good_folder_and_parts_of_it(keys: Path, tmp_path: Path) -> None:
    for host in ("fed.example.org", "10.1.2.3", "localhost", "127.0.0.1"):
        assert len(check(keys, host)) == 4
    with pytest.raises(FedaxError, match=r"not for elsewhere: .* --renew --host elsewhere"):
        check(keys, "elsewhere")
    node = tmp_path / "node"
    node.mkdir()
    for name in ("ca.crt", "node-1.key"):
        shutil.copy(keys / name, node)
    assert check(node)[1:] == ["node-1.key is good"]
    with pytest.raises(FedaxError, match="has no certificate and no key"):
        check(tmp_path / "nowhere")
    if os.name == "posix":
        assert all((path.stat().st_mode & 0o077 == 0) == (path.suffix == ".key") for path in keys.glob("*.*"))


def test_renewing_keeps_authority_hosts_and_nodes(keys: Path) -> None:
    before = {path.name: path.read_bytes() for path in keys.glob("*.*")}
    certify(keys, -3, -1, "fed.example.org")
    assert {path.name for path in renew(keys)} == {"server.crt", "server.key"}
    assert len(check(keys, "fed.example.org")) == 4
    after = {path.name: path.read_bytes() for path in keys.glob("*.*")}
    assert {name for name in after if after[name] != before[name]} == {"server.crt", "server.key"}
    renew(keys, ["new.example.org"])
    for host in ("new.example.org", "fed.example.org"):
        assert len(check(keys, host)) == 4


def days_later(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Let the module's clock be ahead of this one's."""

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return datetime.datetime.now(tz) + days * DAY

    ahead = SimpleNamespace(datetime=Later, timedelta=datetime.timedelta, UTC=datetime.UTC)
    monkeypatch.setattr("fedax.flower.certificates.datetime", ahead)


def test_a_certificate_that_has_expired_is_renewed_and_sites_need_nothing(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = (keys / "ca.crt").read_bytes()
    for days in (100, 200, 3000):
        days_later(monkeypatch, days)
        with pytest.raises(FedaxError, match=r"server.crt expired on .* --renew"):
            check(keys)
        renew(keys)
        assert len(check(keys, "fed.example.org")) == 4
        assert (keys / "ca.crt").read_bytes() == authority
    days_later(monkeypatch, 3700)
    with pytest.raises(FedaxError, match="days is 90: the authority ends in 39 days"):
        renew(keys)
    renew(keys, days=30)


@pytest.mark.parametrize(("end", "announced"), [(29, True), (31, False)])
def test_the_end_of_a_certificate_is_announced_30_days_before(keys: Path, end: int, announced: bool) -> None:
    certify(keys, -60, end)
    words = f", which is in {end - 1} days: renew it"
    assert (words in check(keys)[1]) == announced
    with listening(keys) as port:
        assert (words in handshake(keys, f"localhost:{port}")) == announced


def test_bad_requests_get_one_sentence(keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in [
        ([str(keys)], "already holds something"),
        ([str(tmp_path / "new"), "--nodes", "0"], "nodes is 0"),
        ([str(tmp_path / "new"), "--days", "0"], "days is 0"),
        ([str(tmp_path / "new"), "--days", "99999999"], "days is 99999999"),
        ([str(tmp_path / "new"), "--nodes", "1000000000"], "nodes is 1000000000"),
        ([str(tmp_path / "new"), "--host", "fed.example.org:8000"], "without a port"),
        ([str(tmp_path / "new"), "--renew"], "ca.crt is missing"),
    ]:
        assert invoke(["flower", "keys", *arguments]) == 2
        printed = capsys.readouterr()
        assert words in " ".join((printed.out + printed.err).split())
    assert not (tmp_path / "new").exists()


@contextlib.contextmanager
def listening(folder: Path | None) -> Iterator[int]:
    """A server on loopback with a folder's certificate, or one without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def answer() -> None:
            with contextlib.suppress(OSError):
                plain, _ = server.accept()
                with plain:
                    if folder is None:
                        plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        return
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.load_cert_chain(folder / "server.crt", folder / "server.key")
                    with context.wrap_socket(plain, server_side=True) as secure:
                        secure.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            thread.join()


def test_what_a_node_finds(keys: Path, tmp_path: Path) -> None:
    with listening(keys) as port:
        assert "good certificate" in handshake(keys, f"localhost:{port}")
    make(tmp_path / "others", 1)
    with listening(keys) as port, pytest.raises(FedaxError, match="another authority signed it"):
        handshake(tmp_path / "others", f"localhost:{port}")
    certify(keys, -1, 1, "fed.example.org")
    with listening(keys) as port, pytest.raises(FedaxError, match="does not name localhost, renew it there"):
        handshake(keys, f"localhost:{port}")
    expired(keys)
    with listening(keys) as port, pytest.raises(FedaxError, match="it has expired, renew it there"):
        handshake(keys, f"localhost:{port}")
    with listening(None) as port, pytest.raises(FedaxError, match="does not speak TLS"):
        handshake(keys, f"localhost:{port}")
    with pytest.raises(FedaxError, match=f"127.0.0.1:{port} cannot be reached: connection refused"):
        handshake(keys, f"127.0.0.1:{port}")
    with pytest.raises(FedaxError, match="must be HOST:PORT"):
        handshake(keys, "localhost")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


def wait_for(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


def test_a_known_key_is_let_in_and_an_unknown_one_refused(keys: Path, tmp_path: Path) -> None:
    """A SuperLink with TLS and authentication; node 0 is registered, node 1 is not."""
    link, *nodes = free_ports(3)
    programs = Path(sys.executable).parent
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(tmp_path / "flwr")}
    environment = {**os.environ, **quiet, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "flwr").mkdir()
    config = (keys / "flwr/config.toml").read_text()
    ca = f'root-certificates = "{keys / "ca.crt"}"'
    config = re.sub("root-certificates = .*", lambda _: ca, config.replace("fed.example.org:8000", f"localhost:{link}"))
    (tmp_path / "flwr/config.toml").write_text(config)
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: object) -> tuple[subprocess.Popen[bytes], Path]:
        log = tmp_path / f"{name}.log"
        with log.open("wb") as file:
            command = [str(argument) for argument in arguments]
            process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=tmp_path)
        started.append(process)
        return process, log

    def node(number: int) -> tuple[subprocess.Popen[bytes], Path]:
        where = ["--superlink", f"localhost:{link}", "--root-certificates", keys / "ca.crt", "--port", nodes[number]]
        own = ["--auth-supernode-private-key", keys / f"node-{number}.key", "--node-config", f"partition-id={number}"]
        return start(f"node-{number}", programs / "flower-supernode", *where, *own)

    def answers() -> bool:
        with contextlib.suppress(FedaxError):
            return bool(handshake(keys, f"localhost:{link}"))
        return False

    try:
        tls = [
            "--ssl-ca-certfile",
            keys / "ca.crt",
            "--ssl-certfile",
            keys / "server.crt",
            "--ssl-keyfile",
            keys / "server.key",
        ]
        more = ["--enable-supernode-auth", "--host", "127.0.0.1", "--port", link]
        _, log = start("link", programs / "flower-superlink", *tls, *more)
        wait_for(answers)
        register = [programs / "flwr", "supernode", "register", keys / "node-0.pub"]
        told = subprocess.run(register, env=environment, capture_output=True, text=True, timeout=60, check=True)
        known = re.search(r"SuperNode (\d+) registered", told.stdout)
        assert known is not None
        (let_in, _), (refused, refusal) = node(0), node(1)
        wait_for(lambda: f"Activated node_id={known[1]}" in log.read_text())
        wait_for(lambda: refused.poll() is not None)
        assert "Exit Code: 305" in refusal.read_text()
        assert "[code: 2004] Failed to activate SuperNode." in refusal.read_text()
        assert "No SuperNode found with the given public key" in log.read_text()
        assert log.read_text().count("Activated node_id=") == 1
        assert let_in.poll() is None
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=20)


class Sealed:
    """A grid of four nodes that upload under secure aggregation; `gone` says from which of the four exchanges on."""

    def __init__(self, gone: dict[int, int], weights: dict[int, int]) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        rng = np.random.default_rng(7)
        self.uploads = {
            node: {
                "w": rng.normal(size=(40, 5)).astype(np.float32),
                "travelled": np.float32(0.1 * node)[()] * np.ones(()),
            }
            for node in (1, 2, 3, 4)
        }
        self.gone, self.weights, self.exchange = gone, weights, 0
        self.spoilt: dict[str, Any] = {}  # fields of node 2's replies, with what it sends in their place
        self.contexts = {node: Context(1, node, {}, RecordDict(), {}) for node in self.uploads}
        self.seen: list[Message] = []

    def app(self, node: int) -> ClientApp:
        app = ClientApp()

        @app.train(mods=[veil])
        def train(message: Message, context: Context) -> Message:
            assert message.content["broadcast"]["x"].numpy().tolist() == [float(node)]  # its own order, as it was sent
            reply = content(self.uploads[node], {"loss": 0.5}, reach=8.0, weight=self.weights[node])
            return Message(reply, reply_to=message)

        return app

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        here = [message for message in messages if self.exchange < self.gone.get(message.metadata.dst_node_id, 99)]
        self.exchange += 1
        # A copy, as over a network: the modifier takes its own configuration out of what it gets.
        replies = [
            self.app(m.metadata.dst_node_id)(copy.deepcopy(m), self.contexts[m.metadata.dst_node_id]) for m in here
        ]
        self.seen += copy.deepcopy(replies)
        for reply in replies:
            said = reply.content["secaggplus_configs"]
            for name in said.keys() & self.spoilt.keys() if reply.metadata.src_node_id == 2 else ():
                said[name] = self.spoilt[name](said[name])
        return replies


def orders() -> dict[int, RecordDict]:
    return {
        node: RecordDict({"broadcast": ArrayRecord({"x": Array(np.array([float(node)]))})}) for node in (1, 2, 3, 4)
    }


@pytest.mark.parametrize(
    ("gone", "counted"),
    [
        ({}, [1, 2, 3, 4]),
        ({2: 0}, [1, 3, 4]),
        ({2: 1}, [1, 3, 4]),
        ({2: 2}, [1, 3, 4]),
        ({2: 3}, [1, 2, 3, 4]),
        ({2: 2, 3: 2}, None),
        ({1: 0, 2: 0}, None),
    ],
)
@pytest.mark.parametrize("weights", [{1: 1, 2: 1, 3: 1, 4: 1}, {1: 10, 2: 40, 3: 5, 4: 25}])
def test_a_sealed_mean_is_the_plain_one_of_those_who_stayed(
    gone: dict[int, int], counted: list[int] | None, weights: dict[int, int]
) -> None:
    grid, asked = Sealed(gone, weights), Mean(reach=8.0, timeout=1.0)
    largest = max(weights.values())
    found = asked.ask(grid, orders(), grid.uploads[1], round=3, max_weight=float(largest))  # type: ignore[arg-type]
    if counted is None:
        assert found is None
        return
    assert found is not None
    assert sorted(found.beside) == counted
    assert all(beside == {"loss": 0.5} for beside in found.beside.values())
    total = sum(weights[node] for node in counted)
    # Of each client's entry a step is lost, and of its weight half of one: steps are of the weighted entries.
    room = asked.precision(4) * len(counted) * 2 * largest / total
    for name in ("w", "travelled"):
        plain = sum(weights[node] * grid.uploads[node][name].astype(np.float64) for node in counted) / total
        assert found.mean[name].dtype == grid.uploads[1][name].dtype
        np.testing.assert_allclose(found.mean[name], plain, rtol=1e-6, atol=room)


def _as_npy(values: Any) -> bytes:
    np.save(file := io.BytesIO(), values)
    return file.getvalue()


SPOILT: dict[str, tuple[str, Any, list[int] | None]] = {
    "a key that is none": ("pk1", lambda key: b"no key", [1, 3, 4]),
    "a key of text": ("pk2", lambda key: "no key", [1, 3, 4]),
    "shares for itself": ("dsts", lambda to: [2] * len(to), [1, 3, 4]),
    "a share too few": ("ctxts", lambda sealed: sealed[1:], [1, 3, 4]),
    "no vector": ("masked_params", lambda arrays: [], [1, 3, 4]),
    "a pickle": ("masked_params", lambda arrays: [arrays[0], b"cos\nsystem\n"], [1, 3, 4]),
    "a longer vector": ("masked_params", lambda arrays: [arrays[0], _as_npy(np.zeros(300, np.int64))], [1, 3, 4]),
    "objects": ("masked_params", lambda arrays: [arrays[0], arrays[1].replace(b"<i8", b"|O8")], [1, 3, 4]),
    "shares of a stranger": ("nids", lambda nodes: [99, *nodes[1:]], [1, 2, 3, 4]),
    "short shares": ("shares", lambda shares: [share[:-1] for share in shares], [1, 2, 3, 4]),
    "garbage that is sealed": ("ctxts", lambda sealed: [b"x" * len(text) for text in sealed], None),
    "shares of nothing": ("shares", lambda shares: [share[:4] + b"x" * (len(share) - 4) for share in shares], None),
    "another vector": ("masked_params", lambda arrays: [arrays[0], _as_npy(np.arange(201) << 24)], None),
}


@pytest.mark.parametrize("lie", SPOILT)
def test_a_site_that_breaks_the_protocol_stops_no_server(lie: str) -> None:
    """What does not have the form is left out; a lie that nobody can see spoils the round, which has no mean."""
    name, change, counted = SPOILT[lie]
    grid = Sealed({}, {1: 1, 2: 1, 3: 1, 4: 1})
    grid.spoilt = {name: change}
    found = Mean(reach=8.0).ask(grid, orders(), grid.uploads[1], round=1)  # type: ignore[arg-type]
    assert counted == (None if found is None else sorted(found.beside))
    if found is not None and counted is not None:
        plain = np.mean([grid.uploads[node]["w"] for node in counted], axis=0)
        np.testing.assert_allclose(found.mean["w"], plain, atol=1e-6)


def test_nothing_of_an_upload_is_seen() -> None:
    grid = Sealed({}, {1: 1, 2: 1, 3: 1, 4: 1})
    assert Mean(reach=8.0).ask(grid, orders(), grid.uploads[1], round=0) is not None  # type: ignore[arg-type]
    masked = {}
    for reply in grid.seen:
        assert not any(len(record) for record in reply.content.array_records.values())
        for name, value in reply.content["secaggplus_configs"].items():
            if name == "masked_params":
                masked[reply.metadata.src_node_id] = np.load(io.BytesIO(value[1])).ravel()
    assert sorted(masked) == [1, 2, 3, 4]
    for node, vector in masked.items():
        assert abs(np.corrcoef(vector[1:], grid.uploads[node]["w"].ravel())[0, 1]) < 0.4  # 200 entries


def test_what_secure_aggregation_refuses() -> None:
    grid = Sealed({}, {1: 1, 2: 1, 3: 1, 4: 1})
    with pytest.raises(FedaxError, match="asked of 2 clients: it must be 3 or more"):
        Mean().ask(grid, dict(list(orders().items())[:2]), grid.uploads[1], round=0)  # type: ignore[arg-type]
    with pytest.raises(FedaxError, match=r"an entry of size 9.5: secure aggregation carries up to 8"):
        content({"w": np.float32([1.0, -9.5])}, {})
    with pytest.raises(FedaxError, match="an entry of size nan"):
        content({"w": np.float32([np.nan])}, {})
    with pytest.raises(FedaxError, match="under secure aggregation only"):
        grid.app(1)(Message(orders()[1], 1, "train"), grid.contexts[1])
    for reach in (0, -1.0, float("inf"), True):
        with pytest.raises(FedaxError, match="reach is"):
            Mean(reach=reach)
