"""Speak OpenAI's audio protocol: `/audio/transcriptions` and `/audio/speech`.

What compatible servers do otherwise, and how it is read:

* vLLM, Voxtral and OpenAI's gpt-4o models refuse `verbose_json`. The recording is sent again for `json`, without times.
* whisper.cpp reports failures with the status 200 and a member `error`. Its segments may have no times.
* LocalAI has neither duration nor language, and older versions have times in nanoseconds.
* vLLM writes the duration as text.
* Some servers answer plain text, whatever the format.
"""

import asyncio
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from core.errors import ModelError
from core.sentences import Sentence
from llm.providers import errors
from llm.providers.connection import Connection, RequestBody, json_body, number_at, read_body
from llm.types.speech import Recording, SpeechTranscript, SpokenText, TranscriptSegment

MAX_SEGMENTS = 100_000
NANOSECONDS = 1_000_000  # times above this are in nanoseconds: no recording has 1,000,000 seconds
_FORMAT_REFUSED = re.compile(rb"verbose_json|response_format", re.IGNORECASE)
# First bytes of sound, with the media type for browsers.
_SOUNDS = (
    (re.compile(rb"ID3|\xff[\xe0-\xff]"), "audio/mpeg"),
    (re.compile(rb"RIFF....WAVE", re.DOTALL), "audio/wav"),
    (re.compile(rb"OggS"), "audio/ogg"),
    (re.compile(rb"fLaC"), "audio/flac"),
    (re.compile(rb"....ftyp", re.DOTALL), "audio/mp4"),
)


class SpeechClient:
    """Client of a speech server. `patience`: time limit of a call in seconds."""

    def __init__(self, base_url: str, api_key: str, patience: float) -> None:
        self._server = Connection(base_url, api_key, patience)
        self._api_key = api_key
        self._patience = patience

    async def transcribe(self, model: str, recording: Recording) -> SpeechTranscript:
        """Return the text of a recording, with times if the server has them. Raises `ModelError`."""
        try:
            async with asyncio.timeout(self._patience):
                status, body, kind = await self._post_recording(model, recording, "verbose_json")
                if status >= 300 and _FORMAT_REFUSED.search(body[:20_000]):
                    status, body, kind = await self._post_recording(model, recording, "json")
        except TimeoutError as error:
            raise errors.timeout_error() from error
        return self._transcript(body, kind)

    async def speak(self, model: str, voice: str, text: str) -> SpokenText:
        """Return the text as sound, as MP3 if the server can. Raises `ModelError`."""
        fields = {"model": model, "voice": voice, "input": text, "response_format": "mp3"}
        try:
            async with asyncio.timeout(self._patience):
                response = await self._server.exchange("/audio/speech", json_body(fields, accept="*/*"))
                body = await read_body(response)
        except TimeoutError as error:
            raise errors.timeout_error() from error
        if response.status >= 300:
            raise self._server.refusal(response, body)
        media_type = next((kind for signature, kind in _SOUNDS if signature.match(body)), "")
        if not media_type:
            raise self._stated_error(_parse_json(body)) or errors.wrong_endpoint_error()
        return SpokenText(media_type, body)

    async def _post_recording(self, model: str, recording: Recording, response_format: str) -> tuple[int, bytes, str]:
        """Return status, body and media type of the answer. Raises `ModelError` for a refusal of other reasons."""
        form = aiohttp.FormData({"response_format": response_format})
        if model:
            form.add_field("model", model)
        form.add_field("file", recording.content, filename=recording.name, content_type=recording.media_type)
        payload = form()
        content = await payload.as_bytes()
        body = RequestBody(content, payload.content_type, "application/json, text/plain")
        response = await self._server.exchange("/audio/transcriptions", body)
        answer = await read_body(response)
        if response.status == 413:
            raise ModelError(
                "recording_too_large",
                Sentence(
                    "The speech server does not take recordings of {size} MB. Split the recording, or compress it.",
                    size=max(1, round(len(recording.content) / 1_000_000)),
                ),
                retryable=False,
            )
        refuses_format = response_format != "json" and _FORMAT_REFUSED.search(answer[:20_000])
        if response.status >= 300 and not refuses_format:
            raise self._server.refusal(response, answer)
        return response.status, answer, response.content_type

    def _transcript(self, body: bytes, media_type: str) -> SpeechTranscript:
        answer = _parse_json(body)
        if answer is None and media_type == "text/plain":
            return SpeechTranscript(body.decode(errors="replace").strip())
        if isinstance(answer, str):
            return SpeechTranscript(answer.strip())
        if not isinstance(answer, Mapping):
            raise errors.wrong_endpoint_error()
        segments = _segments(answer.get("segments"))
        text = answer.get("text")
        if not isinstance(text, str):
            if not segments:
                raise self._stated_error(answer) or errors.wrong_endpoint_error()
            text = " ".join(segment.text for segment in segments)
        usage = answer.get("usage")
        seconds = _seconds(answer.get("duration")) or _seconds(
            usage.get("seconds") if isinstance(usage, Mapping) else 0
        )
        return SpeechTranscript(
            text.strip(),
            segments,
            seconds or max((segment.end for segment in segments), default=0.0),
            number_at(usage, "input_tokens"),
            number_at(usage, "output_tokens"),
        )

    def _stated_error(self, answer: Any) -> ModelError | None:
        """Return the error in an answer with status 200, or None if it has none."""
        if isinstance(answer, Mapping) and errors.is_error(answer):
            return errors.from_event(answer, self._api_key)
        return None


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _seconds(value: Any) -> float:
    """Return a time in seconds, or 0 if the value is no time."""
    try:
        number = float(value) if isinstance(value, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    if not (math.isfinite(number) and number > 0):
        return 0.0
    return number / 1e9 if number > NANOSECONDS else number


def _segments(rows: Any) -> tuple[TranscriptSegment, ...]:
    """Return the segments with words, or none if one of them has no times."""
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return ()
    segments: list[TranscriptSegment] = []
    for row in rows[:MAX_SEGMENTS]:
        text = row.get("text") if isinstance(row, Mapping) else None
        if not isinstance(text, str) or not text.strip():
            continue
        times = [row.get(name) for name in ("start", "end")]
        if any(
            isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time) for time in times
        ):
            return ()
        start, end = (max(0.0, float(time)) for time in times)
        segments.append(TranscriptSegment(start, max(start, end), " ".join(text.split())))
    if segments and max(segment.end for segment in segments) > NANOSECONDS:
        return tuple(TranscriptSegment(each.start / 1e9, each.end / 1e9, each.text) for each in segments)
    return tuple(segments)
