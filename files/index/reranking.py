"""Call and change re-rankers: models that read a question with a passage and score the passage.

Judgements are cached for a minute, since the same prompt is planned again and again while a user writes. After a
failure, the re-ranker is not called for some seconds.
"""

import hashlib
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import AbstractUser
from django.core.cache import cache
from django.db import transaction
from redis.exceptions import RedisError

from core.audit.services import load_stored, record, record_saved
from core.background import submit
from core.crypto import KEY_LOST, is_lost
from core.errors import ModelError
from core.locks import lock
from core.outside import wait_outside
from core.permissions import require_right, require_store
from core.sentences import Sentence
from files.index.ledger import NO_PAYER, Payer, record_call
from files.index.search import ChunkHit
from files.models import Reranker
from llm import tokens

if TYPE_CHECKING:
    from llm.providers.reranking import RerankingClient

ACTIVE_LOCK = "active re-ranker"  # the lock for changes of the active re-ranker
FAILURE_PAUSE = 15  # seconds without calls after a failure
CACHE_SECONDS = 60  # seconds that a judgement is cached
MAX_HALVINGS = 3  # times that passages are halved, if they are too long for the model
TRIAL = ("capital of France", ["rain in May", "Paris, the capital of France"])
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Scores of passages, from 0 to 1. `cut` passages were shortened to their first `longest` tokens."""

    scores: list[float]
    cut: int
    longest: int


def text_to_judge(hit: ChunkHit) -> str:
    return "\n".join(filter(None, (hit.heading, hit.table_head, hit.text)))


def cached_judgement(reranker: Reranker, query: str, texts: list[str], payer: Payer) -> Judgement:
    """Return the cached judgement, else ask the server. Raises `ModelError`, also if the last call failed recently."""
    row = [str(reranker.pk), reranker.kind, reranker.base_url, reranker.model, reranker.api_key, reranker.longest]
    row_digest = hashlib.sha256(json.dumps(row).encode()).hexdigest()
    texts_digest = hashlib.sha256(json.dumps([row_digest, query, texts]).encode()).hexdigest()
    cached = _read_cache(f"re-ranker:{row_digest}", f"re-ranker:{texts_digest}")
    if isinstance(cached, Judgement):
        return cached
    if cached is not None:
        raise ModelError("reranker_failed", Sentence.load(cached), retryable=True)
    try:
        judgement = judge(reranker, query, texts, payer)
    except ModelError as error:
        _write_cache(f"re-ranker:{row_digest}", error.sentence.dump(), FAILURE_PAUSE)
        raise
    _write_cache(f"re-ranker:{texts_digest}", judgement, CACHE_SECONDS)
    return judgement


def _read_cache(failure: str, judgement: str) -> Any:
    try:
        return cache.get(judgement) or cache.get(failure)
    except RedisError:
        return None


def _write_cache(key: str, value: object, seconds: int) -> None:
    try:
        cache.set(key, value, seconds)
    except RedisError:
        log.warning("the judgement of a re-ranker is not cached: Redis is unavailable")


def judge(reranker: Reranker, query: str, texts: Sequence[str], payer: Payer = NO_PAYER) -> Judgement:
    """Ask the server, and store the call in the ledger. If it refuses passages as too long, halves them and retries.

    Raises `ModelError`.
    """
    if is_lost(reranker.api_key):
        raise ModelError("secret_lost", KEY_LOST, retryable=False)
    client = _client(reranker.kind, reranker.base_url, reranker.api_key, float(reranker.patience))
    longest = reranker.longest
    sent = [tokens.truncate(text, longest) for text in texts]
    with record_call(reranker, payer, _count_tokens(query, sent)) as usage:
        for attempt in range(MAX_HALVINGS + 1):
            try:
                with wait_outside():
                    scores, reported, searches = submit(client.scores(reranker.model, query, sent)).result()
                break
            except ModelError as error:
                if error.code != "context_too_long" or attempt == MAX_HALVINGS:
                    raise
            longest = min(longest, max(map(tokens.count, sent))) // 2
            sent = [tokens.truncate(text, longest) for text in sent]
        usage.add(reported, 0 if reported else _count_tokens(query, sent), searches)
    cut = sum(one != other for one, other in zip(sent, texts, strict=True))
    return Judgement(_normalize_scores(scores), cut, longest)


def _count_tokens(query: str, texts: Sequence[str]) -> int:
    """Return the tokens that the model reads: each passage together with the query."""
    return tokens.count(query) * len(texts) + sum(map(tokens.count, texts))


@lru_cache(maxsize=8)
def _client(kind: str, base_url: str, api_key: str, timeout: float) -> "RerankingClient":
    from llm.providers.reranking import RerankingClient  # noqa: PLC0415 - most processes call no model

    return RerankingClient(kind, base_url, api_key, timeout)


def _normalize_scores(scores: list[float]) -> list[float]:
    """Return scores from 0 to 1. Some servers return shares, others logits."""
    if all(0 <= score <= 1 for score in scores):
        return scores
    return [1 / (1 + math.exp(-max(-500.0, min(500.0, score)))) for score in scores]


@transaction.atomic
def store_reranker(*, user: AbstractUser, reranker: Reranker, api_key: str | None) -> None:
    """Store a re-ranker that a form has validated. The first re-ranker of all becomes active.

    `api_key`: None keeps the stored key, an empty string removes it.
    """
    require_store(user, reranker)
    if api_key is not None:
        reranker.api_key = api_key
    lock(ACTIVE_LOCK)
    if not Reranker.objects.exists():
        reranker.active = True
    before = load_stored(reranker)
    reranker.save()
    record_saved(user=user, kind="reranker", row=reranker, before=before, name=reranker.name)


@transaction.atomic
def use_reranker(*, user: AbstractUser, reranker: Reranker, active: bool) -> None:
    """Make this re-ranker the active one, or switch it off."""
    require_right(user, "change", reranker)
    lock(ACTIVE_LOCK)
    if active:
        Reranker.objects.filter(active=True).exclude(pk=reranker.pk).update(active=False)
    Reranker.objects.filter(pk=reranker.pk).update(active=active)
    reranker.active = active
    action = "reranker.switched_on" if active else "reranker.switched_off"
    record(user=user, action=action, row=reranker, name=reranker.name)


def try_reranker(*, reranker: Reranker) -> bool:
    """Return whether the re-ranker scores a passage with the answer above one without it. Raises `ModelError`."""
    query, texts = TRIAL
    other, answer = judge(reranker, query, texts).scores
    return answer > other
