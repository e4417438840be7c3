"""The ServerApp: what a run over a network begins with, and what it leaves however it ends.

The rounds are in `fedax.flower.server_rounds`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedax.engine.result import Result
from fedax.errors import DivergedError, FedaxError
from fedax.experiments import Experiment
from fedax.flower.agreement import Setting, setting_of
from fedax.flower.guard import Guard
from fedax.flower.network import MAX_ROWS, PAUSE, Network
from fedax.flower.quorum import Quorum, whole_number
from fedax.flower.safe_log import log, printable
from fedax.flower.server_folder import ServerFolder
from fedax.flower.server_rounds import Server
from fedax.flower.table_sums import preparation_in
from fedax.flower.watchdog import Watchdog, leave
from fedax.runs.lock import locked

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp


def server_app(
    experiment: Setting | Experiment | str | os.PathLike[str],
    *,
    clients: int | None = None,
    guard: Guard | None = None,
) -> ServerApp:
    """A Flower ServerApp that runs the experiment's method on the clients that connect.

    clients: where clients bring their own rows (`client_app(..., data=...)`), how many there are in all.
    guard: the checks of each upload; those of the run configuration unless given.

    Flower's run configuration may name `method`, `seed`, `out` (the run's directory), `min-clients`, `min-answers`,
    `round-timeout`, `max-norm` and `norm-factor` (of an upload), `max-rows` (that a client may claim), `clip`, `noise`,
    `delta` and `cohorts` (see `fedax.flower.privacy_settings`), `secure` (see `fedax.flower.secure_aggregation`) and
    `preparation` (a file that `fedax.flower.table_preparation_app` wrote: kept with the model, which then predicts).
    A run that was stopped or killed goes on when it is started again with the same `out`.
    """
    from flwr.serverapp import ServerApp

    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        config = dict(context.run_config)
        setting = setting_of(experiment, config, clients=clients)
        serve(grid, setting, Path(str(config.get("out") or f"runs/{setting.name}")), config, guard=guard)

    app.main()(main)
    return app


def serve(
    grid: Grid,
    setting: Setting,
    out: Path,
    config: Mapping[str, Any],
    *,
    guard: Guard | None = None,
    pause: float | None = None,
) -> Result:
    """Run a setting to its end on the clients of a grid, and leave a run directory."""
    quorum = Quorum.of(setting, config)
    guard = guard or Guard.of(config)
    preparation = preparation_in(config.get("preparation"))
    max_rows = whole_number("max-rows", config.get("max-rows") or MAX_ROWS, 2**40)
    with locked(out):
        folder = ServerFolder(out, setting)
        with folder.logged():
            server: Server | None = None

            def end(why: str) -> None:
                _say_why(folder, 0 if server is None else server.round, FedaxError(why))
                leave()

            dog = Watchdog(end)
            network = Network(
                grid,
                setting,
                run=folder.run,
                owners=folder.owners,
                max_rows=max_rows,
                pause=PAUSE if pause is None else pause,
                seen=dog.seen,
            )
            try:
                with dog.watching():
                    server = Server(network, setting, folder, quorum, guard, preparation)
                    return server.run()
            except DivergedError as error:
                log.error(str(error))
                raise
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                _say_why(folder, 0 if server is None else server.round, error)
                raise


def _say_why(folder: ServerFolder, round: int, error: BaseException) -> None:
    """Write into the run's directory why its server stops."""
    if isinstance(error, Exception):
        status = "failed"
        why = str(error) if isinstance(error, FedaxError) else f"unexpected {type(error).__name__}: {error}"
    else:
        status, why = "interrupted", "the server was stopped: start it again to go on"
    log.error(why)
    with contextlib.suppress(FedaxError):  # the disk may be what is wrong
        folder.status(status, round, printable(why))
