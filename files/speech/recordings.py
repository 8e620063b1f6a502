"""Transcribe uploaded recordings: the text of a file of sound, with times."""

from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from core.errors import ModelError, ProductError
from core.sentences import Sentence
from core.text import clean
from files.index.ledger import Payer
from files.models import SpeechServer
from files.speech import services
from llm.types.speech import SpeechTranscript
from readers.api import Extracted, media_types

NO_SPEECH = Sentence("No speech was recognised in this recording. Upload another one, or a transcript as text.")
NO_TIMES = Sentence("The speech server reports no times, so the text has none.")
MAX_CHARACTERS = 5_000_000


@dataclass(frozen=True, slots=True)
class ReadRecording:
    """The text of a recording, and notes on how it came about."""

    extracted: Extracted
    notes: tuple[Sentence, ...] = field(default=())


def sound_of(path: Path, name: str) -> str:
    """Return the media type of a file of sound; "" for another file."""
    with path.open("rb") as source:
        return media_types.sound_type(source.read(media_types.HEAD_BYTES), name)


def read_recording(server: SpeechServer, path: Path, media_type: str, owner: UUID) -> ReadRecording:
    """Return the text of a recording. Blocks until the server has answered.

    Raises ProductError with a sentence for the owner: `recording_too_large`, `limit_reached`, `no_speech`,
    `transcription_failed`.
    """
    services.require_size(server, path.stat().st_size)
    try:
        transcript = services.transcribe(server, media_type, path.read_bytes(), Payer(owner))
    except ModelError as error:
        if error.code == "recording_too_large":
            raise
        raise ProductError(
            "transcription_failed",
            Sentence("The recording could not be transcribed: {reason}", reason=error.sentence),
        ) from error
    text = _text_of(transcript)
    if not any(map(str.isalnum, text)):
        raise ProductError("no_speech", NO_SPEECH)
    made_by = Sentence("Transcribed by the speech server “{server}”. The text may have errors.", server=server.name)
    notes = (made_by,) if transcript.segments else (made_by, NO_TIMES)
    return ReadRecording(Extracted(media_type, text), notes)


def _text_of(transcript: SpeechTranscript) -> str:
    """Return one line for each segment, with its time; the plain text without segments."""
    lines = [f"[{_clock(each.start)}] {each.text}" for each in transcript.segments]
    text = clean("\n".join(lines) if lines else transcript.text)
    if len(text) > MAX_CHARACTERS:
        raise ProductError(
            "transcript_too_long", "The server sent more text than a recording can have. Check the server, or split it."
        )
    return text


def _clock(seconds: float) -> str:
    """Return a time as 1:02:03, or 2:03 within the first hour."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
