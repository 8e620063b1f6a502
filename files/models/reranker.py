"""Re-rankers, which reorder the hits of a search."""

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from uuid_utils.compat import uuid7

from core.crypto import EncryptedTextField
from llm.models.provider import price_field, validate_base_url


class Reranker(models.Model):
    """Server that scores each passage together with the question. Searches use the active one, if any.

    `candidates`: number of top passages that it reorders. `longest`: most tokens per passage sent to it. `patience`:
    seconds to wait before the search keeps its own order.
    """

    class Kind(models.TextChoices):
        COHERE = "cohere", "Cohere, Jina, vLLM, llama.cpp or compatible"
        TEI = "tei", "Text Embeddings Inference"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=Kind, default=Kind.COHERE)
    base_url = models.CharField(
        "base URL",
        max_length=200,
        validators=[validate_base_url],
        help_text="/rerank is added to it. For example https://api.cohere.com/v2, https://api.jina.ai/v1, "
        "http://127.0.0.1:8001/v1 for vLLM or llama.cpp, http://127.0.0.1:8080 for Text Embeddings Inference.",
    )
    api_key = EncryptedTextField("API key", blank=True, default="")
    model = models.CharField(max_length=200, blank=True, help_text="Empty for a server with a single model.")
    candidates = models.PositiveSmallIntegerField(
        "passages",
        default=30,
        validators=[MinValueValidator(2), MaxValueValidator(100)],
        help_text="Number of the best passages of a search that it reorders.",
    )
    longest = models.PositiveIntegerField(
        "longest passage",
        default=1_024,
        validators=[MinValueValidator(32)],
        help_text="Tokens of a passage that it reads. A search that cuts a passage says so in its note.",
    )
    input_price = price_field("price of what it reads", "US dollars a million tokens. Empty: they cost nothing.")
    search_price = price_field(
        "price of searches", "US dollars a thousand searches, as vendors bill that do not count tokens. Empty: none."
    )
    patience = models.PositiveSmallIntegerField(
        "longest wait",
        default=5,
        validators=[MinValueValidator(1), MaxValueValidator(15)],
        help_text="Seconds after which the original order is used.",
    )
    active = models.BooleanField(default=False, editable=False)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "re-ranker"
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["active"], condition=Q(active=True), name="one_active_reranker")
        ]

    def __str__(self) -> str:
        return self.name
