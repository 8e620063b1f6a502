"""Call and change speech servers.

The active server of each kind is cached for one version of the workspace, since every page of a conversation says which
of its buttons use a server.
"""

import io
import math
import wave
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import transaction

from core.audit.services import load_stored, record, record_saved
from core.background import submit
from core.crypto import KEY_LOST, is_lost
from core.errors import ModelError, ProductError, invalid_setting
from core.locks import lock
from core.outside import wait_outside
from core.permissions import require_right, require_store
from core.sentences import Sentence
from files.index.ledger import NO_PAYER, Payer
from files.models import SpeechServer
from files.speech.ledger import SpeechUsage, record_call
from llm import tokens
from llm.types.speech import Recording, SpeechTranscript, SpokenText
from readers.api import media_types
from workspace.models.version import VersionedCache

ACTIVE_LOCK = "active speech server"  # the lock for changes of the active servers
WAIT = 60.0  # seconds that a person waits for dictation or a spoken text
MAX_SPOKEN = 4_096  # characters of one text that is read aloud; OpenAI's limit
MAX_DICTATED = 10_000_000  # bytes of one dictation: at least ten minutes as browsers record
TOO_LONG_TO_DICTATE = Sentence("This is too long to dictate at once. Upload the recording as a file.")
CHARACTERS_PER_SECOND = 15  # of speech, for usage that a server does not report
BYTES_PER_SECOND = 16_000  # of recordings with 128 kbit/s, for usage before a server has reported it
SUFFIXES = {
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/wav": "wav",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/webm": "webm",
}
TRIAL_TEXT = "Glasshouse can read this aloud."


def _read_active() -> dict[str, SpeechServer]:
    return {row.kind: row for row in SpeechServer.objects.filter(active=True)}


_active = VersionedCache(_read_active)


def active_servers(version: UUID | None = None) -> Mapping[str, SpeechServer]:
    """Return the active servers by their kind, as `active_server`. The rows are shared: do not change them."""
    return _active.get(version)


def active_server(kind: SpeechServer.Kind, version: UUID | None = None) -> SpeechServer | None:
    """Return the active server of a kind, as of this version of the workspace or later; None if this part is off."""
    return _active.get(version).get(kind)


def require_server(kind: SpeechServer.Kind) -> SpeechServer:
    """Return the active server of a kind. Raises `speech_off` (409)."""
    server = active_server(kind)
    if server is None:
        raise ProductError(
            "speech_off",
            "This workspace has no speech server for it. An administrator can name one under “Speech servers”.",
            status=409,
        )
    return server


def dictated(*, payer: Payer, content: bytes) -> SpeechTranscript:
    """Return the text of what a person dictates.

    Raises `speech_off` (409), `recording_too_large` (413), `no_recording`, `limit_reached` (429) and `ModelError`.
    """
    server = require_server(SpeechServer.Kind.TRANSCRIPTION)
    if len(content) > MAX_DICTATED:
        raise ProductError("recording_too_large", TOO_LONG_TO_DICTATE, status=413)
    media_type = media_types.sound_type(content[: media_types.HEAD_BYTES], "dictation.m4a")
    if not media_type:
        raise ProductError(
            "no_recording", "This is no recording that can be read. Send MP3, M4A, WAV, Ogg, WebM or FLAC."
        )
    return transcribe(server, media_type, content, payer, wait=min(WAIT, server.patience))


def transcribe(
    server: SpeechServer, media_type: str, content: bytes, payer: Payer, *, wait: float | None = None
) -> SpeechTranscript:
    """Return the text of a recording. Blocks until the server has answered. Stores the call in the ledger.

    `wait`: seconds; None for the patience of the server. Raises `recording_too_large` (413), `limit_reached` (429) and
    `ModelError`.
    """
    require_size(server, len(content))
    recording = Recording(f"recording.{SUFFIXES[media_type]}", media_type, content)
    expected = SpeechUsage(seconds=_length_of(media_type, content))
    with record_call(server, payer, expected) as usage:
        client = _client_of(server, wait or server.patience)
        transcript: SpeechTranscript = _wait_for(client.transcribe(server.model, recording))
        usage.input = transcript.input
        usage.output = transcript.output
        usage.counted = not transcript.seconds
        if transcript.seconds:
            usage.seconds = transcript.seconds
        elif media_type != "audio/wav":  # the length of a WAV is exact
            usage.seconds = len(transcript.text) / CHARACTERS_PER_SECOND
    return transcript


def require_size(server: SpeechServer, size: int) -> None:
    """Raise `recording_too_large` (413) if a recording has more bytes than the server may get."""
    if size > server.largest * 1_000_000:
        raise ProductError(
            "recording_too_large",
            Sentence(
                "Recordings of more than {most} MB are not transcribed here. Split the recording, or compress it.",
                most=server.largest,
            ),
            status=413,
        )


def speak(*, payer: Payer, text: str) -> SpokenText:
    """Return a text as sound.

    Raises `speech_off` (409), `nothing_to_say`, `text_too_long`, `limit_reached` (429) and `ModelError`.
    """
    server = require_server(SpeechServer.Kind.SPEECH)
    if not any(map(str.isalnum, text)):
        raise ProductError("nothing_to_say", "The text has no words. Send at least one.")
    if len(text) > MAX_SPOKEN:
        raise ProductError(
            "text_too_long", Sentence("Send at most {most} characters at a time.", most=MAX_SPOKEN), status=413
        )
    return _speak(server, text, payer)


def _speak(server: SpeechServer, text: str, payer: Payer) -> SpokenText:
    expected = SpeechUsage(seconds=len(text) / CHARACTERS_PER_SECOND, characters=len(text), input=tokens.count(text))
    with record_call(server, payer, expected):
        client = _client_of(server, min(WAIT, server.patience))
        spoken: SpokenText = _wait_for(client.speak(server.model, server.voice, text))
    return spoken


def _wait_for(call: Any) -> Any:
    with wait_outside():
        return submit(call).result()


def _client_of(server: SpeechServer, wait: float) -> Any:
    if is_lost(server.api_key):
        raise ModelError("secret_lost", KEY_LOST, retryable=False)
    return _client(server.base_url, server.api_key, float(wait))


@lru_cache(maxsize=8)
def _client(base_url: str, api_key: str, patience: float) -> Any:
    # Imported late, since most processes never send HTTP requests to a model.
    return import_module("llm.providers.speech").SpeechClient(base_url, api_key, patience)


def _length_of(media_type: str, content: bytes) -> float:
    """Return the seconds of a recording: exact for a WAV, else estimated from its size."""
    if media_type == "audio/wav":
        try:
            with wave.open(io.BytesIO(content)) as sound:
                seconds = sound.getnframes() / max(1, sound.getframerate())
        except (wave.Error, EOFError):
            pass
        else:
            return min(seconds, len(content) / 1_000) if math.isfinite(seconds) else 0.0
    return len(content) / BYTES_PER_SECOND


@transaction.atomic
def store_speech_server(*, user: AbstractUser, server: SpeechServer, api_key: str | None) -> SpeechServer:
    """Store a speech server. It is off until `use_speech_server` switches it on.

    `api_key`: None keeps the stored key, an empty string removes it. Raises `invalid_setting`, and the errors of
    `core.permissions.require_store`.
    """
    require_store(user, server)
    if api_key is not None:
        server.api_key = api_key
    lock(ACTIVE_LOCK)
    before = load_stored(server)
    if before is not None:
        server.active = before.active
        server.kind = before.kind
    try:
        server.full_clean()
    except ValidationError as error:
        raise invalid_setting(error.message_dict) from error
    server.save()
    record_saved(user=user, kind="speech_server", row=server, before=before, name=server.name)
    return server


@transaction.atomic
def use_speech_server(*, user: AbstractUser, server: SpeechServer, active: bool) -> None:
    """Make this server the active one of its kind, or switch it off."""
    require_right(user, "change", server)
    lock(ACTIVE_LOCK)
    if active:
        SpeechServer.objects.filter(kind=server.kind, active=True).exclude(pk=server.pk).update(active=False)
    SpeechServer.objects.filter(pk=server.pk).update(active=active)
    server.active = active
    action = "speech_server.switched_on" if active else "speech_server.switched_off"
    record(user=user, action=action, row=server, name=server.name)


def try_speech_server(*, server: SpeechServer) -> Sentence:
    """Call the server once, and return what it did. Raises `ModelError`.

    A server for speech to text gets one second of silence, one for text to speech a short sentence. Nobody is billed.
    """
    if server.kind == SpeechServer.Kind.SPEECH:
        spoken = _speak(server, TRIAL_TEXT, NO_PAYER)
        size = max(1, len(spoken.content) // 1_000)
        return Sentence("{server} works: it sent {size} kB of sound.", server=str(server), size=size)
    transcript = transcribe(server, "audio/wav", _silence(), NO_PAYER, wait=min(WAIT, server.patience))
    if transcript.segments or transcript.seconds:
        return Sentence("{server} works, and reports times.", server=str(server))
    return Sentence("{server} works. It reports no times, so transcripts may have none.", server=str(server))


def _silence() -> bytes:
    """Return one second of silence as a WAV."""
    written = io.BytesIO()
    with wave.open(written, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(bytes(32_000))
    return written.getvalue()
