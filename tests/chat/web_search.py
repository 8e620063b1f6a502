"""A search service of the test's own on loopback."""

import json
from http.server import BaseHTTPRequestHandler

RESULTS = {
    "results": [
        {"url": "https://example.org/tides", "title": "Tides", "content": "High water is at noon."},
        {"url": "https://example.org/moon", "title": "Moon", "content": "The moon is full."},
    ]
}


class SearXNG(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(RESULTS).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
