"""A process that carries out a SuperNode's messages one after the other, and so keeps JAX, the rows and the programs.

By itself a SuperNode starts a process for each message, which imports JAX, reads the data and loads its compiled
programs: three seconds of work around a few milliseconds of training. A SuperNode that is started with
`--isolation process` leaves that to others. `keep` is such another: Flower's own SuperExec, which asks the SuperNode
for tasks, with an executor that carries them out here. It stands on interfaces that are internal to Flower.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedax.errors import FedaxError
from fedax.flower.safe_log import log

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp


class ThreadExecutor:
    """What SuperExec calls to have a task carried out; this one does it in a thread, one app's work at a time.

    A thread for each, as a message of a run that has ended may never come whole: the wait for it must hold up no other.
    """

    def __init__(self) -> None:
        self._apps: dict[str, ClientApp] = {}  # by the hash of their bundle
        self._one = threading.Lock()

    def get_eligible_capacity(self, supported_task_types: Any, **_: Any) -> Any:
        """The task types that can be taken: all of them."""
        return supported_task_types, set()

    def launch(self, spec: Any) -> Any:
        """Have one message carried out."""
        from flwr.supercore.superexec.executor import LaunchResult

        threading.Thread(target=self._carry_out, args=(spec,), daemon=True).start()
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Does nothing: no state is kept that could go stale."""

    def close(self) -> None:
        """Nothing is open between two tasks."""

    def _carry_out(self, spec: Any) -> None:
        from flwr.app import Error, Message
        from flwr.common.constant import ErrorCode, SubStatus
        from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
        from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

        client = _connect(spec)
        heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heartbeat.start()
        try:
            message, context, run, fab = pull_task_input(client)
            ended, details = SubStatus.COMPLETED, ""
            try:
                with self._one:
                    reply = self._app(run, fab)(message, context)
            except Exception as error:
                log.exception("the ClientApp failed")
                ended, details = SubStatus.FAILED, f"{type(error).__name__}: {error}"
                reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, details), reply_to=message)
            push_message(client, reply, context)
            push_task_output(client=client, context=context, sub_status=ended, details=details)
        except Exception as error:
            log.warning("a message could not be taken or answered: %s", error)
        finally:
            heartbeat.stop()
            client.close()

    def _app(self, run: Any, fab: Any) -> ClientApp:
        """The app of a bundle, loaded once."""
        if fab.hash_str not in self._apps:
            from flwr.cli.install import install_from_fab
            from flwr.clientapp.utils import get_load_client_app_fn
            from flwr.common.config import get_project_dir

            install_from_fab(fab.content, skip_prompt=True)
            here = Path(get_project_dir(run.fab_id, run.fab_version, fab.hash_str)).resolve()
            _forget_others(here.parent)
            load = get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
            self._apps[fab.hash_str] = load(run.fab_id, run.fab_version, fab.hash_str)
        return self._apps[fab.hash_str]


def _connect(spec: Any) -> Any:
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supercore.tls import validate_and_resolve_root_certificates

    return RuntimeHttpClient.from_server_address(
        server_address=spec.runtime_api_address,
        insecure=spec.insecure,
        root_certificates=validate_and_resolve_root_certificates(spec.root_certificates_path, spec.insecure),
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
            RuntimeTokenHttpInterceptor(spec.token),
        ],
        retry_invoker=make_simple_http_retry_invoker(),
    )


def _forget_others(apps: Path) -> None:
    """Forget the modules of other bundles, which have the same names as this one's."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and apps in Path(file).resolve().parents:
            del sys.modules[name]
    sys.path[:] = [entry for entry in sys.path if apps not in Path(entry).resolve().parents]


def keep(address: str, root_certificates: str | None = None) -> None:
    """Carry out the messages of the SuperNode whose Runtime API is at an address, until this process is ended.

    root_certificates: a file, where that API is served with TLS.
    """
    try:
        from flwr.supercore.superexec import run_superexec as superexec
        from flwr.supernode.runtime import run_clientapp  # noqa: F401
    except ImportError as error:
        raise FedaxError(f"this version of Flower has no such tasks ({error}): let the SuperNode start them") from error
    module: Any = superexec if hasattr(superexec, "get_executor") else sys.modules[superexec.__module__]
    executor = ThreadExecutor()
    module.get_executor = lambda *_, **__: executor
    module.run_superexec(
        runtime_api_address=address,
        insecure=root_certificates is None,
        root_certificates_path=root_certificates,
    )
