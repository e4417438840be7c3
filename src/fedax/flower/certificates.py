"""Certificates and keys of a test federation: made by one command, and checked before anything is started.

A folder of keys holds

    ca.crt, ca.key          an authority of one's own; ca.crt goes to everybody, ca.key to nobody
    server.crt, server.key  the SuperLink's certificate and its private key
    node-0.key, node-0.pub  a SuperNode's key pair, and so on; the SuperLink is told the public ones
    flwr/config.toml        how `flwr` reaches the SuperLink: FLWR_HOME=DIR/flwr

The authority is valid for ten years longer than the first certificate that it signs, so `--renew` needs nothing of the
sites. A certificate that ends within 30 days is announced by `fedax flower check`, at the server and at a site.

Keys are elliptic, on the curve P-384: PEM for TLS, OpenSSH for nodes, as Flower reads them. A federation of hospitals
will have an authority already; what is checked is the same.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import socket
import ssl
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedax.errors import FedaxError
from fedax.whole_files import write_whole

if TYPE_CHECKING or find_spec("cryptography"):  # which comes with Flower
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = ("localhost", "127.0.0.1")
SOON = datetime.timedelta(days=30)
AUTHORITY_DAYS = 3650  # that the authority outlives the first certificate
MOST_DAYS, MOST_NODES = 36_500, 10_000


def make(folder: Path, nodes: int, hosts: Sequence[str] = (), *, days: int = 90, port: int = 8000) -> list[Path]:
    """Write an authority, a server certificate and a key pair for each node into a new folder; returns the files.

    hosts: names or addresses under which nodes reach the SuperLink; the loopback ones are always among them.

    >>> make(Path("no-such-folder"), 0)
    Traceback (most recent call last):
    fedax.errors.FedaxError: nodes is 0: it must be a whole number from 1 to 10000
    """
    _within("nodes", nodes, MOST_NODES)
    _within("days", days, MOST_DAYS)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FedaxError(
            f"{folder} already holds something: choose another directory, or renew its certificate (--renew)"
        )
    names = _names(hosts)
    authority = ec.generate_private_key(ec.SECP384R1())
    ca = _certificate("Fedax test authority", authority.public_key(), authority, None, [], days + AUTHORITY_DAYS)
    files = {"ca.crt": _pem(ca), "ca.key": _private(authority)}
    files |= _server(authority, ca, names, days)
    for number in range(nodes):
        key = ec.generate_private_key(ec.SECP384R1())
        files[f"node-{number}.key"] = _private(key, openssh=True)
        files[f"node-{number}.pub"] = _public(key)
    address = f"{names[0]}:{port}"
    files["flwr/config.toml"] = _connection(address, Path(os.path.realpath(folder)) / "ca.crt").encode()
    return [_write(folder / name, content) for name, content in files.items()]


def renew(folder: Path, hosts: Sequence[str] = (), *, days: int = 90) -> list[Path]:
    """Write a new server certificate by the folder's authority, for the hosts of the old one and those given.

    An authority that ends before the new certificate would is refused: the sites would need its successor as well.
    """
    _within("days", days, MOST_DAYS)
    ca, authority = _read_certificate(folder / "ca.crt"), _read_key(folder / "ca.key")
    _in_time("ca.crt", ca)
    left = (ca.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days
    if left < days:
        how = f"take at most --days {left}, or make a new folder of keys, whose ca.crt goes to every site"
        raise FedaxError(f"days is {days}: the authority ends in {left} days, and its certificates with it; {how}")
    names = _names([*hosts, *_hosts(_read_certificate(folder / "server.crt"))])
    return [_write(folder / name, content) for name, content in _server(authority, ca, names, days).items()]


def check(folder: Path, host: str | None = None) -> list[str]:
    """Check a folder of keys: a line for each thing that is in order, an error at the first that is not.

    Each party has only a part of the folder, and the parts that are there are checked: the dates, whether the authority
    signed the certificate, whether it belongs to its key and names the host, whether private files are private, and
    whether the keys of each node are a pair.

    >>> check(Path("nowhere"))
    Traceback (most recent call last):
    fedax.errors.FedaxError: nowhere has no certificate and no key: `fedax flower keys nowhere --nodes 3` makes them
    """
    lines = []
    present = {path.name for path in folder.glob("*")} if folder.is_dir() else set()
    nodes = sorted(name.rpartition(".")[0] for name in present if name.startswith("node-") and name.endswith(".key"))
    if not nodes and not present & {"ca.crt", "server.crt", "server.key"}:
        raise FedaxError(f"{folder} has no certificate and no key: `fedax flower keys {folder} --nodes 3` makes them")
    ca = _read_certificate(folder / "ca.crt")
    lines.append(_in_time("ca.crt", ca))
    if present & {"server.crt", "server.key"}:
        lines.append(_check_server(folder, ca, host))
    seen: dict[bytes, str] = {}
    for node in nodes:
        public = _check_node(folder, node)
        if public in seen:
            raise FedaxError(f"{node} and {seen[public]} have the same key: each node must have its own")
        seen[public] = node
        lines.append(f"{node}.key is good")
    return lines


def check_certificate(field: str, path: Path) -> None:
    """Raise if a file is not a certificate in PEM; called before Flower reads the file."""
    if not path.is_file() or b"-----BEGIN CERTIFICATE" not in path.read_bytes()[: 1 << 20]:
        raise FedaxError(f"{field} is {str(path)!r}: it must be a file with a certificate, such as ca.crt")


def handshake(folder: Path, address: str, *, seconds: float = 10.0) -> str:
    """Connect to a SuperLink as a node would, with the folder's ca.crt: a line on its certificate, or an error."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise FedaxError(f"the SuperLink is {address!r}: it must be HOST:PORT, such as fed.example.org:8000")
    host = host.strip("[]")
    context = ssl.create_default_context(cafile=str(_there(folder / "ca.crt")))
    try:
        with (
            socket.create_connection((host, int(port)), timeout=seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return f"{address} answers with a good certificate, by {secure.version()}{_soon(_end_of(secure))}"
    except ssl.SSLCertVerificationError as error:
        raise FedaxError(f"{address} has a certificate that does not hold here: {_mend(error, host)}") from None
    except ssl.SSLError:
        raise FedaxError(
            f"{address} does not speak TLS: start the SuperLink with --ssl-certfile, not --insecure"
        ) from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise FedaxError(f"{address} cannot be reached: {why}; is the SuperLink started and the port open?") from None


def _mend(error: ssl.SSLCertVerificationError, host: str) -> str:
    if "expired" in error.verify_message:
        return "it has expired, renew it there with `fedax flower keys DIR --renew`"
    if "not yet valid" in error.verify_message:
        return "it is not yet valid, is a clock wrong?"
    if "mismatch" in error.verify_message or "not valid for" in error.verify_message:
        return f"it does not name {host}, renew it there with `fedax flower keys DIR --renew --host {host}`"
    return "another authority signed it, so ca.crt must be taken from the SuperLink's folder"


def _server(
    authority: ec.EllipticCurvePrivateKey, ca: x509.Certificate, names: Sequence[str], days: int
) -> dict[str, bytes]:
    key = ec.generate_private_key(ec.SECP384R1())
    made = _certificate(names[0], key.public_key(), authority, ca, names, days)
    return {"server.crt": _pem(made), "server.key": _private(key)}


def _certificate(
    name: str,
    public: ec.EllipticCurvePublicKey,
    authority: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate | None,
    hosts: Sequence[str],
    days: int,
) -> x509.Certificate:
    """A certificate for `public`, signed by the authority; its own one where `ca` is None."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if ca is None else ca.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(end if ca is None else min(end, ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=0 if ca is None else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .add_extension(_usage(signs=ca is None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(authority, hashes.SHA384())


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _check_server(folder: Path, ca: x509.Certificate, host: str | None) -> str:
    certificate, key = _read_certificate(folder / "server.crt"), _read_key(folder / "server.key")
    line = _in_time("server.crt", certificate)
    if certificate.public_key() != key.public_key():
        raise FedaxError(f"{folder / 'server.crt'} does not belong to server.key: take both from one folder")
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        raise FedaxError(f"{folder / 'server.crt'} is not signed by ca.crt: take both from one folder") from None
    hosts = _hosts(certificate)
    if host is not None and host not in hosts:
        how = f"`fedax flower keys {folder} --renew --host {host}`"
        raise FedaxError(f"server.crt is for {', '.join(hosts)} and not for {host}: {how}")
    return f"{line}, for {', '.join(hosts)}"


def _check_node(folder: Path, node: str) -> bytes:
    public = _public(_read_key(folder / f"{node}.key"))
    stated = folder / f"{node}.pub"
    if stated.exists() and stated.read_bytes().split()[:2] != public.split()[:2]:
        raise FedaxError(f"{stated} does not belong to {node}.key: the SuperLink would refuse the node")
    return public


def _in_time(name: str, certificate: x509.Certificate) -> str:
    now = datetime.datetime.now(datetime.UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        how = "make a new folder of keys" if name == "ca.crt" else "`fedax flower keys DIR --renew` makes a new one"
        raise FedaxError(f"{name} expired on {end:%Y-%m-%d %H:%M} UTC: {how}")
    if now < begin:
        raise FedaxError(f"{name} is valid only from {begin:%Y-%m-%d %H:%M} UTC on: is this machine's clock right?")
    return f"{name} is good until {end:%Y-%m-%d %H:%M} UTC{_soon(end)}"


def _soon(end: datetime.datetime) -> str:
    """The words about a certificate that ends within 30 days."""
    left = end - datetime.datetime.now(datetime.UTC)
    return f", which is in {left.days} days: renew it" if left < SOON else ""


def _end_of(secure: ssl.SSLSocket) -> datetime.datetime:
    """The end of the certificate at the other side."""
    seconds = ssl.cert_time_to_seconds(str((secure.getpeercert() or {})["notAfter"]))
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _within(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise FedaxError(f"{name} is {value}: it must be a whole number from 1 to {most}")


def _names(hosts: Sequence[str]) -> list[str]:
    for host in hosts:
        if not host or not host.isascii() or set(host) & set("/ \t*") or (":" in host and not _address(host)):
            raise FedaxError(f"--host is {host!r}: it must be a machine's name or address, without a port")
    return list(dict.fromkeys([*hosts, *LOOPBACK]))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def _general(host: str) -> x509.GeneralName:
    address = _address(host)
    return x509.DNSName(host) if address is None else x509.IPAddress(address)


def _hosts(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise FedaxError("server.crt names no host: it must have subject alternative names") from None
    return [str(name.value) for name in found]


def _connection(address: str, ca: Path) -> str:
    return (
        '[superlink]\ndefault = "federation"\n\n'
        f"[superlink.federation]\naddress = {json.dumps(address)}\nroot-certificates = {json.dumps(str(ca))}\n"
    )


def _there(path: Path) -> Path:
    if not path.is_file():
        raise FedaxError(f"{path} is missing: it must be copied from the folder that `fedax flower keys` made")
    return path


@contextlib.contextmanager
def _readable(path: Path, what: str) -> Iterator[bytes]:
    try:
        yield _there(path).read_bytes()
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        if isinstance(error, FedaxError):
            raise
        raise FedaxError(f"{path} cannot be read as {what}: {error}") from None


def _read_certificate(path: Path) -> x509.Certificate:
    with _readable(path, "a certificate") as content:
        return x509.load_pem_x509_certificate(content)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    with _readable(path, "a private key") as content:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise FedaxError(f"{path} can be read by others on this machine: chmod 600 {path}")
        openssh = b"BEGIN OPENSSH" in content
        load = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
        key = load(content, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FedaxError(f"{path} is not an elliptic key: Flower takes keys on a NIST curve such as P-384 only")
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _private(key: ec.EllipticCurvePrivateKey, *, openssh: bool = False) -> bytes:
    form = serialization.PrivateFormat.OpenSSH if openssh else serialization.PrivateFormat.PKCS8
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return bytes(key.public_key().public_bytes(encoding, form))


def _write(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all, a private key for its owner's eyes only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content, 0o600 if path.suffix == ".key" else 0o644)
    return path
