"""Alerts from the scheduler: a job reached its target, converged, diverged, ended, and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dask_slaq.client.connection import check_plugin, current_client, go_without
from dask_slaq.client.notebook import in_notebook
from dask_slaq.core.errors import NoPlugin
from dask_slaq.core.settings import ALERT_TOPIC

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["alerts"]


#: Number of alerts that stay below a notebook's cell.
MOST_SHOWN = 50


def alerts(
    handler: Callable[[dict[str, Any]], object] | None = None, client: Client | None = None
) -> None:
    """Call a function for every alert from now on, such as one that prints or posts it.

    There are few: each kind comes at most once per job, and one for each change of a job, of the
    policy or of the plugin (``audit``). Where the scheduler does not run the plugin, there are
    none.

    Parameters
    ----------
    handler : callable
        Called with a dict: ``event`` (``reached``, ``late``, ``converged``, ``stalled``,
        ``diverged``, ``done``, ``stopped``, ``failed``, ``lost``, ``audit`` or ``fell back``),
        ``job``, ``owner``, ``message``; those of the end of a job also have ``iteration``,
        ``loss`` and ``seconds``. By default the alert is printed; in a
        notebook below the cell of this call, also after the cell has ended. It replaces the
        handler of an earlier call.
    client : distributed.Client, optional
        Defaults to the current client.

    Examples
    --------
    >>> alerts(lambda alert: requests.post(URL, json=alert))  # doctest: +SKIP
    """
    client = current_client(client)
    if not client.asynchronous:
        try:
            client.sync(check_plugin, client)
        except NoPlugin as error:
            go_without(client, error)
    if handler is None:
        handler = _printer()
    if ALERT_TOPIC in client._event_handlers:
        client.unsubscribe_topic(ALERT_TOPIC)
    client.subscribe_topic(ALERT_TOPIC, lambda event: handler(event[1]))


def _printer() -> Callable[[dict[str, Any]], object]:
    """Return a function that prints alerts."""
    if not in_notebook():
        return lambda alert: print(_line(alert))
    from IPython.display import display

    # Printed text would go to whichever cell runs when the alert comes, or nowhere.
    lines: list[str] = []
    shown = display({"text/plain": "alerts will appear here"}, raw=True, display_id=True)

    def show(alert: dict[str, Any]) -> None:
        lines[:] = [*lines, _line(alert)][-MOST_SHOWN:]
        shown.update({"text/plain": "\n".join(lines)}, raw=True)

    return show


def _line(alert: dict[str, Any]) -> str:
    return f"{alert['event']}: {alert['message']}"
