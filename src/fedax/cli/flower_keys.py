"""`fedax flower keys` and `fedax flower check`: certificates and keys of a test federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedax.cli.options import Debug
from fedax.errors import FedaxError

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of keys.", show_default=False)]

LONGEST = 36_500  # days that a certificate is valid
MOST = 100_000  # nodes; their keys take a few minutes
NEXT = """
On the machine of the SuperLink, where {folder} stays:
  flower-superlink --host 0.0.0.0 --ssl-ca-certfile {folder}/ca.crt --ssl-certfile {folder}/server.crt \\
      --ssl-keyfile {folder}/server.key --enable-supernode-auth --disable-runtime-dependency-installation
  export FLWR_HOME={home}
  for i in {numbers}; do flwr supernode register {folder}/node-$i.pub; done

On the machine of client 0, with copies of ca.crt and node-0.key, and so on:
  flower-supernode --superlink {address}:8000 --root-certificates ca.crt --auth-supernode-private-key node-0.key \\
      --isolation process --port 8101 --node-config 'partition-id=0'
  fedax flower worker 127.0.0.1:8101

Whoever reaches the SuperLink's port can start runs and register keys: outside of a test let only /v1/fleet/ through.
"""


def keys(
    folder: Folder,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="SuperNodes, with a key pair each.")] = 3,
    hosts: Annotated[
        list[str],
        typer.Option("--host", metavar="NAME", help="The SuperLink's name or address; repeatable. Default: loopback."),
    ] = [],  # noqa: B006
    days: Annotated[int, typer.Option("--days", metavar="N", help="How long certificates are valid.")] = 90,
    renewed: Annotated[bool, typer.Option("--renew", help="Replace the server's certificate alone.")] = False,
    debug: Debug = False,
) -> None:
    """Make the certificates and keys of a test federation: TLS for the SuperLink, a key pair for each SuperNode.

    \b
    fedax flower keys keys --nodes 3 --host fed.example.org
    fedax flower keys keys --renew          a certificate that has expired
    """
    from fedax.flower import require

    require()
    from fedax.flower.addresses import check_host
    from fedax.flower.certificates import make, renew

    for host in hosts:
        check_host("--host", host)
    for name, value, most in (("--days", days, LONGEST), ("--nodes", nodes, MOST)):
        if not 1 <= value <= most:
            raise FedaxError(f"{name} is {value}: it must be a whole number from 1 to {most:,}")

    if renewed:
        for path in renew(folder, hosts, days=days):
            print(path)
        print("Start the SuperLink again: it reads its certificate when it starts.")
        return
    for path in make(folder, nodes, hosts, days=days):
        print(path)
    numbers = " ".join(str(number) for number in range(nodes))
    address = hosts[0] if hosts else "127.0.0.1"
    print(NEXT.format(folder=folder, home=folder.resolve() / "flwr", numbers=numbers, address=address))


def check(
    folder: Folder,
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="A name that the certificate must be for.")
    ] = None,
    superlink: Annotated[
        str | None, typer.Option("--superlink", metavar="HOST:PORT", help="Connect to this SuperLink as a node would.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Check certificates and keys before anything is started: dates, hosts, pairs; and the SuperLink from a node.

    \b
    fedax flower check keys --host fed.example.org             by the SuperLink
    fedax flower check keys --superlink fed.example.org:8000   by a client
    """
    from fedax.flower import require

    require()
    from fedax.flower.addresses import check_address
    from fedax.flower.certificates import check as look
    from fedax.flower.certificates import handshake

    if host is not None and superlink is not None:
        raise FedaxError("--host and --superlink are both given: it must be one, --host beside the server's key")
    if superlink is not None:
        check_address("--superlink", superlink)
    for line in look(folder, host):
        print(line)
    if superlink is not None:
        print(handshake(folder, superlink))
