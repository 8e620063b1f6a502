"""A server of OpenAI's protocol that obeys the beginning of a prompt, if it has not dropped it."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from llm import tokens

WORD = re.compile(r"The word to remember is (\w+)")


@contextmanager
def reading_server(window: int | None = None, *, obedient: bool = True) -> Iterator[str]:
    """Run the server and yield its base URL.

    With a `window` in tokens it drops whole messages from the front of a longer prompt, as Ollama's `/v1` does, and
    reports the tokens of the rest. One that is not `obedient` repeats nothing."""
    count = tokens.tokenizer(tokens.CATCH_ALL).count

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            messages: list[dict[str, Any]] = body["messages"]
            while window and len(messages) > 1 and sum(count(each["content"]) for each in messages) > window:
                messages = messages[1:]
            named = WORD.search(" ".join(each["content"] for each in messages))
            reply = named[1] if named and obedient else "I was told no word."
            usage = {"prompt_tokens": sum(count(each["content"]) for each in messages), "completion_tokens": 3}
            chunks = [
                {"choices": [{"index": 0, "delta": {"role": "assistant", "content": reply}}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
                {"choices": [], "usage": usage},
            ]
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
            answer = "".join(lines).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
