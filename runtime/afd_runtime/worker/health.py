"""The worker's HTTP side: /health (the process moves), /ready (it is in the member table and connected),
/metrics (the process itself; the unit's series are the coordinator's)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

REQUEST_TIMEOUT_S = 5.0
_TEXT = "text/plain; charset=utf-8"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        """The empty host means every address of both families."""
        if ":" in address[0] or (not address[0] and socket.has_dualstack_ipv6()):
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class HealthServer:
    """Serves until `close`. `healthy` and `ready` answer None for yes, else the reason in words."""

    def __init__(
        self, host: str, port: int, healthy: Callable[[], str | None], ready: Callable[[], str | None]
    ) -> None:
        """Raises OSError when the port is taken."""

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_TIMEOUT_S

            def do_GET(self) -> None:
                match self.path:
                    case "/health":
                        self._verdict(healthy())
                    case "/ready":
                        self._verdict(ready())
                    case "/metrics":
                        self._answer(200, generate_latest(), CONTENT_TYPE_LATEST)
                    case _:
                        self._answer(404, b"there are /health, /ready and /metrics\n", _TEXT)

            def _verdict(self, reason: str | None) -> None:
                self._answer(200 if reason is None else 503, f"{reason or 'ok'}\n".encode(), _TEXT)

            def _answer(self, code: int, body: bytes, kind: str) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes come every second: nothing to say about them."""

        self._server = _Server((host, port), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
