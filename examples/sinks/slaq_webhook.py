"""Posts alerts of the scheduler to an address, as JSON.

``slaq.notify: {ann: {call: {class: slaq_webhook.Webhook, url: "https://..."}}}`` where the
scheduler runs, with this file on its ``PYTHONPATH``.
"""

import json
import urllib.request


class Webhook:
    def __init__(self, url, timeout=10):
        if not url.startswith(("http://", "https://")):
            raise ValueError("the address must start with http:// or https://")
        self.url, self.timeout = url, timeout

    def __call__(self, notice):
        body = json.dumps(notice, default=str).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "dask-slaq"}
        request = urllib.request.Request(self.url, body, headers)
        urllib.request.urlopen(request, timeout=self.timeout).close()
