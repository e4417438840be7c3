"""The same methods over a real network, on Flower: `fedax.flower.server_app` and `fedax.flower.client_app`.

They wrap any method and any problem as a ServerApp and a ClientApp; `fedax flower new` writes an app folder for
`flwr run`. Flower is the extra `fedax[flower]`, and is imported only when an app is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedax.errors import FedaxError

if TYPE_CHECKING:
    from fedax.flower.agreement import Setting
    from fedax.flower.client import client_app
    from fedax.flower.server import server_app
    from fedax.flower.table_sums import table_preparation_app, table_sums_app

__all__ = ["Setting", "client_app", "server_app", "table_preparation_app", "table_sums_app"]
_HOMES = {
    "Setting": "agreement",
    "client_app": "client",
    "server_app": "server",
    "table_preparation_app": "table_sums",
    "table_sums_app": "table_sums",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def require() -> None:
    """Raise one sentence where Flower is not installed."""
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise FedaxError("Flower is not installed: pip install 'fedax[flower]' brings it")
