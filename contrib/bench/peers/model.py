"""Serve the scripted model of `make bench-peers`: OpenAI's protocol with minimal work, on one event loop.

The model of the tests counts tokens and stores every request, which would slow down a conversation of 10,000 messages.
A question contains `script: TTFT TOKENS INTERVAL` (times in seconds). Every token of the answer has a time stamp of its
sending. The first token also has a time stamp of the request's arrival, and the number of messages in the request.
"""

import asyncio
import json
import re
import signal
import sys
import time

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
WIDTH = 7  # digits of a time stamp: microseconds of the monotonic clock, which restart at 0 after 22 hours
WRAP = len(DIGITS) ** WIDTH
PROMPT_NUMBERS = rb"got ([0-9a-z]{7}) of (\d+)"
STAMP = rb"=([0-9a-z]{7})(?![0-9a-z])"
_SCRIPT = re.compile(rb"script: ([\d.]+) (\d+) ([\d.]+)")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_JSON = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
_MESSAGE, _FORM = b'"role":', b"# The form"  # substrings of each message, and of our summary prompt
SUMMARY = "## Earlier\nThey counted.\n\n## Now\nThey go on counting."
_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_PARAGRAPH = 25  # tokens
_EVENT = '{"id":"1","object":"chat.completion.chunk","created":1,"model":"scripted",%s}'
_CHOICE = '"choices":[{"index":0,"delta":%s,"finish_reason":%s}]'
_USAGE = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
MODELS = ("scripted", "narrow")


def script(ttft: float, tokens: int, interval: float) -> str:
    """Return a question with this script."""
    return f"Say when. script: {ttft} {tokens} {interval}"


def stamp(seconds: float) -> str:
    number, digits = int(seconds * 1e6) % WRAP, ""
    for _ in range(WIDTH):
        number, digit = divmod(number, len(DIGITS))
        digits = DIGITS[digit] + digits
    return digits


def since(stamped: bytes, now: float) -> float:
    """Return the seconds from a stamp to a later moment."""
    microseconds: int = (int(now * 1e6) - int(stamped, len(DIGITS))) % WRAP
    return microseconds / 1e6


def _event(rest: str) -> bytes:
    data = f"data: {_EVENT % rest}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


class _ModelConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._data = bytearray()
        self._needed = 0
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        if self._due:
            self._due.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < self._needed or (end := self._data.find(b"\r\n\r\n")) < 0:
            return
        length = _LENGTH.search(self._data, 0, end)
        self._needed = end + 4 + (int(length[1]) if length else 0)
        if len(self._data) >= self._needed:
            head, body = bytes(self._data[:end]), bytes(self._data[end + 4 : self._needed])
            del self._data[: self._needed]
            self._needed = 0
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        arrived = time.monotonic()
        if b"/models" in head.split(b"\r\n", 1)[0]:
            rows = [{"id": name, "object": "model", "created": 1, "owned_by": "bench"} for name in MODELS]
            self._whole(200, {"object": "list", "data": rows})
        elif b"/chat/completions" not in head:
            self._whole(404, {"error": {"message": "There is no such address.", "type": "invalid_request_error"}})
        elif re.search(rb'"stream": ?true', body):
            self._stream(arrived, body)
        else:
            message = {"role": "assistant", "content": SUMMARY if _FORM in body else "A short answer."}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._whole(200, {"id": "1", "object": "chat.completion", "choices": [choice], "usage": _USAGE})

    def _whole(self, status: int, value: object) -> None:
        payload = json.dumps(value).encode()
        self._transport.write(_JSON % (status, len(payload), payload))

    def _stream(self, arrived: float, body: bytes) -> None:
        scripts = _SCRIPT.findall(body)
        ttft, tokens, interval = scripts[-1] if scripts else (b"0", b"1", b"0")
        self._interval, self._tokens, self._sent = float(interval), int(tokens), 0
        if _FORM in body:
            self._tokens, self._interval = 1, 0.0
        self._begins = asyncio.get_running_loop().time() + float(ttft)
        self._prefix = SUMMARY if _FORM in body else f"got {stamp(arrived)} of {body.count(_MESSAGE)}"
        self._usage = b"include_usage" in body
        self._transport.write(_STREAM)
        self._wait()

    def _wait(self) -> None:
        due = self._begins + self._sent * self._interval
        self._due = asyncio.get_running_loop().call_at(due, self._token)

    def _token(self) -> None:
        text = f"{self._prefix} ={stamp(time.monotonic())}"
        self._sent += 1
        self._prefix = "\n\nNext" if self._sent % _PARAGRAPH == 0 else ""
        self._transport.write(_event(_CHOICE % (json.dumps({"content": text}), "null")))
        if self._sent < self._tokens:
            self._wait()
            return
        tail = _event(_CHOICE % ("{}", '"stop"'))
        if self._usage:
            tail += _event(f'"choices":[],"usage":{json.dumps(_USAGE)}')
        self._transport.write(tail + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_ModelConnection, "127.0.0.1", 0, backlog=1024)
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    sys.stdout.write(json.dumps({"port": server.sockets[0].getsockname()[1]}) + "\n")
    sys.stdout.flush()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
