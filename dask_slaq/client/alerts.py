"""Alerts from the scheduler: a job reached its target, converged, diverged, ended, and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dask_slaq.client.connection import current_client
from dask_slaq.core.validation import ALERT_TOPIC

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["alerts"]


def _print(alert: dict[str, Any]) -> None:
    print(f"{alert['event']}: {alert['message']}")


def alerts(
    handler: Callable[[dict[str, Any]], object] = _print, client: Client | None = None
) -> None:
    """Call a function for every alert from now on, such as one that prints or posts it.

    There are few: each kind comes at most once per job.

    Parameters
    ----------
    handler : callable
        Called with a dict: ``event`` (``reached``, ``late``, ``converged``, ``stalled``,
        ``diverged``, ``done`` or ``fell back``), ``job``, ``owner``, ``message``. By default the
        alert is printed. It replaces the handler of an earlier call.
    client : distributed.Client, optional
        Defaults to the current client.

    Examples
    --------
    >>> alerts(lambda alert: requests.post(URL, json=alert))  # doctest: +SKIP
    """
    client = current_client(client)
    if ALERT_TOPIC in client._event_handlers:
        client.unsubscribe_topic(ALERT_TOPIC)
    client.subscribe_topic(ALERT_TOPIC, lambda event: handler(event[1]))
