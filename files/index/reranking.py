"""What a search has found, in the order of the workspace's re-ranker: a model that reads question and passage together.

Without one, and whenever it fails, the first order stays; a note says why. A re-ranker that failed is left alone for
some seconds, and what it has said is kept for a minute: while somebody writes, the same is planned again and again.
"""

import hashlib
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.core.cache import cache
from django.db import transaction
from redis.exceptions import RedisError

from core.audit.services import record, record_saved, stored
from core.background import submit
from core.crypto import LOST, is_lost
from core.errors import ModelError
from core.locks import lock
from core.outside import wait_outside
from core.permissions import require_right, require_store
from core.sentences import Sentence
from files.index.ledger import NOBODY, Payer, written_down
from files.index.search import Hit
from files.models import Reranker
from llm import tokens

ACTIVE_LOCK = "active re-ranker"  # two admins choosing one at once choose one after the other
LEFT_ALONE, KEPT = 15, 60  # seconds
HALVINGS = 3  # of passages that turn out to be too long for it
TRIAL = ("capital of France", ["rain in May", "Paris, the capital of France"])
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A score for each passage, from 0 to 1; `cut` of them were given only in part, by at most `longest` tokens."""

    scores: list[float]
    cut: int
    longest: int


def text_to_judge(hit: Hit) -> str:
    return "\n".join(filter(None, (hit.heading, hit.table_head, hit.text)))


def ordered_by(reranker: Reranker, query: str, texts: list[str], payer: Payer) -> Judgement:
    """As the server says it, or has said it a moment ago. Raises `ModelError`."""
    row = [str(reranker.pk), reranker.kind, reranker.base_url, reranker.model, reranker.api_key, reranker.longest]
    of_row = hashlib.sha256(json.dumps(row).encode()).hexdigest()
    of_texts = hashlib.sha256(json.dumps([of_row, query, texts]).encode()).hexdigest()
    kept = _remembered(f"re-ranker:{of_row}", f"re-ranker:{of_texts}")
    if isinstance(kept, Judgement):
        return kept
    if kept is not None:
        raise ModelError("reranker_failed", Sentence.load(kept), retryable=True)
    try:
        judgement = judge(reranker, query, texts, payer)
    except ModelError as error:
        _remember(f"re-ranker:{of_row}", error.sentence.dump(), LEFT_ALONE)
        raise
    _remember(f"re-ranker:{of_texts}", judgement, KEPT)
    return judgement


def _remembered(failure: str, judgement: str) -> Any:
    try:
        return cache.get(judgement) or cache.get(failure)
    except RedisError:
        return None


def _remember(key: str, value: object, seconds: int) -> None:
    try:
        cache.set(key, value, seconds)
    except RedisError:
        log.warning("what a re-ranker said is not kept: Redis is away")


def judge(reranker: Reranker, query: str, texts: Sequence[str], payer: Payer = NOBODY) -> Judgement:
    """Asks the server, and writes that down. Passages that it finds too long are halved. Raises `ModelError`."""
    if is_lost(reranker.api_key):
        raise ModelError("secret_lost", LOST, retryable=False)
    client = _client(reranker.kind, reranker.base_url, reranker.api_key, float(reranker.patience))
    longest, given = reranker.longest, [tokens.truncate(text, reranker.longest) for text in texts]
    with written_down(reranker, payer, _read(query, given)) as read:
        for attempt in range(HALVINGS + 1):
            try:
                with wait_outside():
                    scores, said, searches = submit(client.scores(reranker.model, query, given)).result()
                break
            except ModelError as error:
                if error.code != "context_too_long" or attempt == HALVINGS:
                    raise
            longest = min(longest, max(map(tokens.count, given))) // 2
            given = [tokens.truncate(text, longest) for text in given]
        read.add(said, 0 if said else _read(query, given), searches)
    cut = sum(one != other for one, other in zip(given, texts, strict=True))
    return Judgement(_from_0_to_1(scores), cut, longest)


def _read(query: str, texts: Sequence[str]) -> int:
    """Tokens: the query is read anew with every passage."""
    return tokens.count(query) * len(texts) + sum(map(tokens.count, texts))


@lru_cache(maxsize=8)
def _client(kind: str, base_url: str, api_key: str, patience: float) -> Any:
    # Not imported before it is needed: most processes never speak HTTP to a model.
    return import_module("llm.providers.reranking").RerankingClient(kind, base_url, api_key, patience)


def _from_0_to_1(scores: list[float]) -> list[float]:
    """Some servers give shares, others logits."""
    if all(0 <= score <= 1 for score in scores):
        return scores
    return [1 / (1 + math.exp(-max(-500.0, min(500.0, score)))) for score in scores]


@transaction.atomic
def store_reranker(*, user: AbstractUser, reranker: Reranker, api_key: str | None) -> None:
    """Stores a row as an administrator's form left it; the very first becomes the active one.

    `api_key` None keeps the stored one, an empty one clears it.
    """
    require_store(user, reranker)
    if api_key is not None:
        reranker.api_key = api_key
    lock(ACTIVE_LOCK)
    if not Reranker.objects.exists():
        reranker.active = True
    before = stored(reranker)
    reranker.save()
    record_saved(user=user, kind="reranker", row=reranker, before=before, name=reranker.name)


@transaction.atomic
def use_reranker(*, user: AbstractUser, reranker: Reranker, active: bool) -> None:
    """Makes it the active one in place of any other, or leaves searches in their first order."""
    require_right(user, "change", reranker)
    lock(ACTIVE_LOCK)
    if active:
        Reranker.objects.filter(active=True).exclude(pk=reranker.pk).update(active=False)
    Reranker.objects.filter(pk=reranker.pk).update(active=active)
    reranker.active = active
    action = "reranker.switched_on" if active else "reranker.switched_off"
    record(user=user, action=action, row=reranker, name=reranker.name)


def try_reranker(*, reranker: Reranker) -> bool:
    """Whether it puts what answers a question above what does not. Raises `ModelError`."""
    query, texts = TRIAL
    other, answer = judge(reranker, query, texts).scores
    return answer > other
