"""Speech servers, which turn speech into text and text into speech."""

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from core.crypto import EncryptedTextField
from llm.models.provider import price_field, validate_base_url


class SpeechServer(models.Model):
    """Server with OpenAI's audio protocol. At most one of each kind is active; without one its part is off.

    `largest`: the largest recording in megabytes (1,000,000 bytes). `patience`: seconds to wait for a whole answer.
    `preferred`: pages use it also where the browser has an engine of its own.
    """

    class Kind(models.TextChoices):
        TRANSCRIPTION = "transcription", "Speech to text (/audio/transcriptions)"
        SPEECH = "speech", "Text to speech (/audio/speech)"

    MAX_MEGABYTES = 100

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=Kind, default=Kind.TRANSCRIPTION)
    base_url = models.CharField(
        "base URL",
        max_length=200,
        validators=[validate_base_url],
        help_text="/audio/transcriptions or /audio/speech is added to it. For example https://api.openai.com/v1, "
        "http://127.0.0.1:8000/v1 for Speaches or vLLM, http://127.0.0.1:8080/v1 for LocalAI.",
    )
    api_key = EncryptedTextField("API key", blank=True, default="")
    model = models.CharField(
        max_length=200,
        blank=True,
        help_text="The server's name for it, such as whisper-1 or tts-1. Empty for a server with a single model.",
    )
    voice = models.CharField(
        max_length=100, blank=True, help_text="For text to speech: a voice of the model, such as alloy."
    )
    preferred = models.BooleanField(
        "instead of the browser's own engine",
        default=False,
        help_text=(
            "Dictation and reading aloud use this server in every browser. Off: only in browsers that have no engine. "
            "Some browsers send the sound to their maker."
        ),
    )
    largest = models.PositiveSmallIntegerField(
        "largest recording",
        default=25,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_MEGABYTES)],
        help_text="In megabytes, at most 100. OpenAI takes 25. For speech to text.",
    )
    patience = models.PositiveSmallIntegerField(
        "longest wait",
        default=600,
        validators=[MinValueValidator(5), MaxValueValidator(3_600)],
        help_text="Seconds after which the transcription of a file fails. Dictation and reading aloud wait one minute.",
    )
    minute_price = price_field("price of a minute", "US dollars a minute of sound. Empty: minutes have no price.")
    character_price = price_field(
        "price of characters", "US dollars a million characters that are read aloud. Empty: they have no price."
    )
    active = models.BooleanField(default=False, editable=False)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind"], condition=Q(active=True), name="one_active_speech_server")
        ]

    def __str__(self) -> str:
        return self.name
