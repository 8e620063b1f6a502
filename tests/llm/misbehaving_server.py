"""An MCP server with scripted answers, over stdio and over streamable HTTP.

It imports nothing of the product, since it also runs as a process of its own.
"""

import json
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4


def tool(name: str, schema: Any = None, description: str = "Does something.") -> dict[str, Any]:
    """A tool as `tools/list` has it; by default its schema is a good one."""
    properties = {"type": "object", "properties": {"a": {"type": "string"}}}
    return {"name": name, "description": description, "inputSchema": properties if schema is None else schema}


# Schemas that real servers send and providers refuse, by the name of the tool; see `llm.tools.mcp_schemas` for where.
BAD_SCHEMAS: dict[str, Any] = {
    "no_properties": {"type": "object", "properties": None},
    "php_properties": {"type": "object", "properties": []},
    "array": {"type": "object", "properties": {"list": {"type": "array"}}},
    "any_of": {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
    "one_of": {"oneOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]},
    "all_of": {"type": "object", "allOf": [{"properties": {"a": {"type": "string"}}}]},
    "text": {"properties": {"a": {"type": "string"}, "type": "object"}},
    "no_type": {"properties": {"a": {"type": "string"}}},
    "types": {"type": "object", "properties": {"a": {"type": ["array", "null"]}}},
    "required": {"type": "object", "properties": {"a": {}}, "required": ["a", "gone"]},
    "reference": {"type": "object", "properties": {"a": {"$ref": "#/$defs/Gone"}}},
    "nothing": None,
}
BROKEN = {"broken": {"type": "array", "items": {"type": "string"}}}  # cannot be repaired


class Misbehaving:
    """An MCP server with scripted answers. It does not use the protocol's package, which would correct them.

    `tools`: the list of tools, in pages of `page`. `results`: by the name of a tool or method, a text, a result, or
    `{"size": n}` for a text of about so many characters with FIRST and LAST at its ends. `hangs`: methods that are
    never answered. `pages`: answers to `tools/list` in place of `tools`: the first without a cursor, the last with one.
    """

    def __init__(
        self,
        tools: Sequence[Any],
        *,
        results: Mapping[str, Any] | None = None,
        page: int = 1_000,
        hangs: str = "",
        pages: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.tools, self.results, self.page, self.hangs = list(tools), dict(results or {}), page, hangs
        self.pages = list(pages)

    def reply(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        if "id" not in message:
            return None
        result = self._result(message["method"], message.get("params") or {})
        if result is None:
            error = {"code": -32601, "message": "Method not found"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def _result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        if method == "initialize":
            about = {"name": "misbehaving", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
        if method in self.results:
            return dict(self.results[method])
        if method == "tools/list" and self.pages:
            return self.pages[-1 if params.get("cursor") else 0]
        if method == "tools/list":
            start = int(params.get("cursor") or 0)
            end = start + self.page
            more = {"nextCursor": str(end)} if end < len(self.tools) else {}
            return {"tools": self.tools[start:end], **more}
        return self._called(params["name"]) if method == "tools/call" else None

    def _called(self, name: str) -> dict[str, Any]:
        result = self.results.get(name, "Done.")
        if isinstance(result, dict) and "size" in result:
            lines = "".join(f"line {number} of the log\n" for number in range(result["size"] // 20))
            result = f"FIRST\n{lines}LAST"
        return result if isinstance(result, dict) else {"content": [{"type": "text", "text": result}]}

    def as_process(self, directory: Path) -> str:
        """The command that starts it over stdio."""
        behaviour = {
            "tools": self.tools,
            "results": self.results,
            "page": self.page,
            "hangs": self.hangs,
            "pages": self.pages,
        }
        file = directory / f"{uuid4().hex}.json"
        file.write_text(json.dumps(behaviour))
        return shlex.join([sys.executable, __file__, str(file)])

    @contextmanager
    def over_http(self, *, status: int = 0, media_type: str = "application/json") -> Iterator[str]:
        """Its address of streamable HTTP. With a `status` every request is answered with that."""
        over = threading.Event()
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"behaviour": self, "over": over}))
        server.daemon_threads = True
        server.status, server.media_type = status, media_type  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            over.set()
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    behaviour: Misbehaving
    over: threading.Event
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.status  # type: ignore[attr-defined]
        if status:
            self._answer(status, b"", "text/plain")
        elif message.get("method") == self.behaviour.hangs:
            self.over.wait()
        elif reply := self.behaviour.reply(message):
            self._answer(200, json.dumps(reply).encode(), self.server.media_type)  # type: ignore[attr-defined]
        else:
            self._answer(202, b"", "application/json")

    def do_GET(self) -> None:
        self._answer(405, b"", "text/plain")

    def _answer(self, status: int, body: bytes, media_type: str) -> None:
        if media_type == "text/event-stream":
            body = b"event: message\ndata: " + body + b"\n\n"
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _over_stdio(behaviour: Mapping[str, Any]) -> None:
    server = Misbehaving(**behaviour)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == server.hangs:
            time.sleep(600)
        if reply := server.reply(message):
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    _over_stdio(json.loads(Path(sys.argv[1]).read_text()))
