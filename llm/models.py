"""Providers and their models, as an admin sets them up. The row decides; known data only suggests."""

from typing import ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q, TextChoices
from uuid_utils.compat import uuid7

from llm.addresses import is_http
from llm.secrets import EncryptedTextField

UNKNOWN_WINDOW = 4096  # tokens; small enough for every model in use, and the admin shows a warning


def validate_base_url(url: str) -> None:
    # Django's URLField would refuse http://ollama:11434/v1, the way one container calls another.
    if not is_http(url):
        raise ValidationError("Begin with http:// or https:// and a host, as in http://127.0.0.1:11434/v1.")


class Provider(models.Model):
    class Kind(TextChoices):
        OPENAI = "openai", "OpenAI or compatible"
        ANTHROPIC = "anthropic", "Anthropic"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=Kind, default=Kind.OPENAI)
    base_url = models.CharField(
        "base URL",
        max_length=200,
        blank=True,
        validators=[validate_base_url],
        help_text="Empty for the provider's own. For example http://127.0.0.1:11434/v1 for Ollama.",
    )
    api_key = EncryptedTextField("API key", blank=True, default="")
    enabled = models.BooleanField(default=True)
    silence_timeout = models.PositiveIntegerField(
        default=120,
        validators=[MinValueValidator(1)],
        help_text="Seconds without a byte from the provider after which an answer is given up.",
    )
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class ModelQuerySet(models.QuerySet["Model"]):
    def usable(self) -> "ModelQuerySet":
        return self.filter(enabled=True, provider__enabled=True).select_related("provider")


class Model(models.Model):
    """One model of a provider. Windows and outputs are in tokens, prices in US dollars a million tokens.

    `token_ratio` is provider-reported over counted prompt tokens, learnt from usage: see `llm.services.learn_ratio`.
    """

    class Tokenizer(TextChoices):
        CATCH_ALL = "", "Unknown (catch-all, with a safety margin)"
        O200K = "o200k_base", "o200k_base (GPT-4o and newer)"
        CL100K = "cl100k_base", "cl100k_base (GPT-4, GPT-3.5)"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="models")
    name = models.CharField(max_length=200, help_text="The provider's own name, such as gpt-5 or llama3.2:3b.")
    context_window = models.PositiveIntegerField(default=UNKNOWN_WINDOW, validators=[MinValueValidator(256)])
    max_output = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Most tokens of one answer; empty for no limit.",
    )
    learnt_window = models.PositiveIntegerField(
        null=True, blank=True, help_text="What the provider said its limit is, when it refused a prompt as too long."
    )
    tokenizer = models.CharField(max_length=20, choices=Tokenizer, blank=True, default=Tokenizer.CATCH_ALL)
    vision = models.BooleanField(default=False, help_text="It can see images.")
    tools = models.BooleanField(default=False, help_text="It can call tools.")
    several_system_messages = models.BooleanField(
        default=True, help_text="Off: all system messages are sent as one, at the start."
    )
    default = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)
    input_price = models.DecimalField(max_digits=12, decimal_places=4, null=True, blank=True)
    output_price = models.DecimalField(max_digits=12, decimal_places=4, null=True, blank=True)
    token_ratio = models.FloatField(
        default=1.0, editable=False, validators=[MinValueValidator(0.5), MaxValueValidator(2.0)]
    )
    ratio_samples = models.PositiveIntegerField(default=0, editable=False)
    created = models.DateTimeField(auto_now_add=True)

    objects = ModelQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["provider__name", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["provider", "name"], name="model_name_once_per_provider"),
            models.UniqueConstraint(fields=["default"], condition=Q(default=True), name="one_default_model"),
            models.CheckConstraint(condition=Q(context_window__gte=256), name="model_window_usable"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def window(self) -> int:
        """Tokens; the smaller of what the row says and what the provider said."""
        return min(self.context_window, self.learnt_window or self.context_window)
