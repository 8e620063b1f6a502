"""Values that go to speech servers, and values that come back."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Recording:
    """Sound to transcribe. `name`: a file name whose ending tells the server the format."""

    name: str
    media_type: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TranscriptSegment:
    """Words of a recording, from `start` to `end` in seconds."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class SpeechTranscript:
    """The text of a recording. `segments` are empty if the server reports no times.

    `seconds`: the duration as the server reports it; 0 without a report. `input` and `output`: tokens, if it bills
    these.
    """

    text: str
    segments: tuple[TranscriptSegment, ...] = ()
    seconds: float = 0.0
    input: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class SpokenText:
    """A text as sound."""

    media_type: str
    content: bytes = field(repr=False)
