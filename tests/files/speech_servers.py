"""A scripted speech server on loopback, as different as real ones are.

Sources: the types of the package `openai` 3.54 and OpenAI's guide (formats of models, 25 MB); `examples/server` of
whisper.cpp (failures with the status 200, segments without times); vLLM's `speech_to_text.py` (formats, durations as
text) and LiteLLM's issue 14943 (the same refusal with the status 500); LocalAI's issue 5327 (no duration, times in
nanoseconds).
"""

import asyncio
import io
import json
import re
import threading
import wave
from email import message_from_bytes
from email.policy import HTTP
from typing import Any

from files.models import SpeechServer
from tests.llm.raw_server import RawServer, answer

KEY = "key-of-the-speech-server"
SEGMENTS = [(0.0, 2.5, " Good morning."), (2.5, 4.0, " The fee is 500 euros."), (3_725.0, 3_726.5, " Goodbye.")]
TEXT = "".join(words for _, _, words in SEGMENTS)
SECONDS = 3_726.5
MP3 = b"ID3\x04\x00\x00\x00\x00\x00\x00" + b"\xff\xfb\x90\x00" + bytes([7]) * 400
FORMATS = {"json", "text", "srt", "verbose_json", "vtt"}
MAX_CONTENT = 26_214_400  # bytes, OpenAI's limit
MAX_INPUT = 4_096  # characters, OpenAI's limit
PAUSE = 60  # seconds that a request waits at most


class ScriptedSpeechServer(RawServer):
    """The speech server. `like`: whose behaviour it has: openai, gpt-4o, whisper.cpp, vllm, litellm, localai or plain.

    `recordings`: the fields of the valid requests for transcriptions. `spoken`: the bodies of those for speech.
    `broken` replaces every answer; None answers nothing. Requests wait while `open` is not set.
    """

    def __init__(self, like: str = "openai", *, broken: bytes | None = b"") -> None:
        super().__init__(self._play_answer)
        self.like, self.broken = like, broken
        self.open = threading.Event()
        self.open.set()
        self.recordings: list[dict[str, Any]] = []
        self.spoken: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.2:{self.port}/v1"

    async def _play_answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        body = self.bodies[-1]  # a later request comes while this one waits
        if self.broken is None:
            await asyncio.Event().wait()
        await asyncio.to_thread(self.open.wait, PAUSE)
        writer.write(self.broken or self._answer_to(head, body))

    def _answer_to(self, head: str, body: bytes) -> bytes:
        if self.like != "whisper.cpp" and f"authorization: bearer {KEY}" not in head.lower():
            return _error("Incorrect API key provided", "401 Unauthorized", type="invalid_request_error")
        if head.startswith("POST /v1/audio/transcriptions HTTP"):
            return self._transcribe(_fields(head, body))
        if head.startswith("POST /v1/audio/speech HTTP"):
            return self._speak(json.loads(body))
        return answer("File Not Found", status="404 Not Found", media_type="text/plain")

    def _transcribe(self, fields: dict[str, Any]) -> bytes:
        content: bytes = fields.get("file", b"")
        response_format = fields.get("response_format", "json")
        if not content or response_format not in FORMATS:
            return _error("Invalid value: 'file'", "400 Bad Request", type="invalid_request_error")
        if len(content) > MAX_CONTENT:
            message = f"Maximum content size limit ({MAX_CONTENT}) exceeded ({len(content)} bytes read)"
            return _error(message, "413 Payload Too Large", type="server_error")
        refused = {"gpt-4o": self._refuse_as_openai, "vllm": self._refuse_as_vllm, "litellm": self._refuse_as_litellm}
        if response_format == "verbose_json" and self.like in refused:
            return refused[self.like]()
        if self.like == "whisper.cpp" and not content.startswith(b"RIFF"):
            return _json({"error": "failed to read WAV file"})
        self.recordings.append(fields)
        if self.like == "plain":
            return answer(TEXT.strip(), media_type="text/plain; charset=utf-8")
        return _json(self._transcript(response_format, silent=not any(content[44:])))

    def _transcript(self, response_format: str, *, silent: bool) -> dict[str, Any]:
        segments = [] if silent else SEGMENTS
        text = "".join(words for _, _, words in segments)
        if response_format == "json":
            details = {"audio_tokens": 40, "text_tokens": 0}
            usage = {"type": "tokens", "input_tokens": 40, "output_tokens": 9, "total_tokens": 49}
            return {"text": text} | (
                {"usage": {**usage, "input_token_details": details}} if self.like == "gpt-4o" else {}
            )
        if self.like == "localai":
            rows = [
                {"id": at, "start": int(start * 1e9), "end": int(end * 1e9), "text": words, "tokens": [1]}
                for at, (start, end, words) in enumerate(segments)
            ]
            return {"segments": rows, "text": text}
        rows = [
            {
                "id": at, "seek": 0, "start": start, "end": end, "text": words, "tokens": [50364], "temperature": 0.0,
                "avg_logprob": -0.2, "compression_ratio": 1.1, "no_speech_prob": 0.01,
            }
            for at, (start, end, words) in enumerate(segments)
        ]  # fmt: skip
        whole = {"task": "transcribe", "language": "english", "text": text, "segments": rows}
        if self.like == "whisper.cpp":  # started with --no-timestamps
            return whole | {"duration": 2.0, "segments": [{"id": row["id"], "text": row["text"]} for row in rows]}
        if self.like == "new-vllm":
            return whole | {"duration": str(SECONDS)}
        return whole | {"duration": SECONDS, "usage": {"type": "duration", "seconds": 3_727}}

    def _refuse_as_openai(self) -> bytes:
        message = "response_format 'verbose_json' is not compatible with model 'gpt-4o-transcribe-api-ev3'. Use 'json'."
        return _error(
            message, "400 Bad Request", type="invalid_request_error", param="response_format", code="unsupported_value"
        )

    def _refuse_as_vllm(self) -> bytes:
        message = "Currently only support response_format `text` or `json`"
        return _json(
            {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400},
            "400 Bad Request",
        )

    def _refuse_as_litellm(self) -> bytes:
        message = (
            "litellm.BadRequestError: Hosted_vllmException - Currently only support response_format `text` or `json`"
        )
        return _error(message, "500 Internal Server Error", type="None", param="None", code="500")

    def _speak(self, body: dict[str, Any]) -> bytes:
        missing = [name for name in ("model", "voice", "input") if not body.get(name)]
        if missing or len(body["input"]) > MAX_INPUT:
            return _error(f"Missing required parameter: {missing}", "400 Bad Request", type="invalid_request_error")
        self.spoken.append(body)
        if self.like == "whisper.cpp":
            return answer("File Not Found (/v1/audio/speech)", status="404 Not Found", media_type="text/plain")
        if self.like == "plain":  # says that it is MP3, whatever it is
            return answer(wav(1, rate=8_000), media_type="audio/mpeg")
        return answer(MP3, media_type="audio/mpeg")


def row_of(server: ScriptedSpeechServer, kind: str = "transcription", **more: Any) -> SpeechServer:
    fields: dict[str, Any] = {"name": f"Ours {kind}", "kind": kind, "base_url": server.url, "api_key": KEY}
    fields |= {"model": "whisper-1" if kind == "transcription" else "tts-1", "active": True}
    fields |= {"voice": "alloy"} if kind == "speech" else {}
    return SpeechServer.objects.create(**fields | more)


def wav(seconds: int, level: int = 7, rate: int = 1_000) -> bytes:
    """A WAV of this length, with so many samples a second."""
    written = io.BytesIO()
    with wave.open(written, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(rate)
        sound.writeframes(bytes([level]) * rate * seconds)
    return written.getvalue()


def _fields(head: str, body: bytes) -> dict[str, Any]:
    """The fields of a form; of a file its bytes, and its name as `file_name`."""
    kind = re.search(r"(?im)^content-type: ([^\r]+)", head)
    assert kind is not None
    form = message_from_bytes(f"Content-Type: {kind[1]}\r\n\r\n".encode() + body, policy=HTTP)
    fields: dict[str, Any] = {}
    for part in form.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        content: Any = part.get_payload(decode=True)
        if part.get_filename():
            fields["file_name"] = part.get_filename()
            fields[name] = content
        else:
            fields[name] = content.decode()
    return fields


def _error(message: str, status: str, **more: Any) -> bytes:
    return _json({"error": {"message": message, **more}}, status)


def _json(value: Any, status: str = "200 OK") -> bytes:
    return answer(json.dumps(value), status=status, media_type="application/json")
