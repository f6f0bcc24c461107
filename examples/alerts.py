"""Post the alerts of a scheduler to an address, as JSON: ``alerts.py SCHEDULER URL``.

Run it as a service, where the scheduler can be reached: it sees the alerts of all owners.
"""

import json
import queue
import sys
import urllib.request

from distributed import Client

import dask_slaq as slaq


def post(url: str, alert: dict) -> None:
    """Post one alert. Raises OSError if that fails."""
    body = json.dumps(alert, default=str).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python alerts.py SCHEDULER URL, such as tcp://10.0.0.1:8786 https://...")
    address, url = sys.argv[1:]
    alerts: queue.Queue = queue.Queue(maxsize=100)
    with Client(address, set_as_default=False) as client:
        slaq.alerts(alerts.put_nowait, client)  # on the client's event loop, which must not wait
        while True:
            try:
                post(url, alerts.get())
            except OSError as error:
                print(f"an alert is lost: {error}", file=sys.stderr)
