"""Rules of the order book for which a prompt is held against the workspace's rows.

`tests/scripted_model/seed_rules.py` has those that a prompt alone can break. Like these, they know nothing of the
engine: the limit is the window that an administrator has typed, and the question is the person's message as stored.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Max

from chat.models import Turn
from llm.models import Model
from llm.tokens import CATCH_ALL, NamedTokenizer
from tests.scripted_model import Record, ScriptedModel

_MODEL = re.compile(rb'"model": ?"([^"\\]+)"')
_PATHS = ("/chat/completions", "/responses", "/messages", "/api/chat")
_TEXTS = ("messages", "input", "system", "instructions", "tools")  # members of the four protocols
_NOT_READ = ("image_url", "data", "images", "encrypted_content", "signature")  # pictures and seals are no text


def broken_promises(model: ScriptedModel, since: datetime) -> list[str]:
    """Return a sentence for each rule that a prompt since then broke. It needs access to the database."""
    records = [each for each in model.requests() if each.method == "POST" and each.path.endswith(_PATHS)]
    return [*_too_large(records), *_changed_questions(model, since)] if records else []


def _too_large(records: list[Record]) -> Iterator[str]:
    """Window, “No limit exceeded”: what is sent has no more tokens than the model's window.

    Models whose provider counts otherwise than we do are left out. Few bodies are counted: a text has at most as many
    tokens as bytes.
    """
    rows = Model.objects.filter(tokenizer__in=("", CATCH_ALL), token_ratio__gte=1).values("name")
    windows = dict(rows.annotate(largest=Max("context_window")).values_list("name", "largest"))
    for record in records:
        name = _MODEL.search(record.raw_body)
        window = windows.get(name[1].decode()) if name else None
        if window is None or len(record.raw_body) <= window:
            continue
        body = record.body
        tokens = sum(NamedTokenizer(CATCH_ALL).count(text) for each in _TEXTS for text in _strings(body.get(each)))
        if tokens > window:
            yield f"no_limit_is_exceeded: {tokens} tokens for a window of {window}: {record.raw_body[:2_000]!r}"


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts of messages and definitions, without the names of their members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in _NOT_READ:
                yield from _strings(each)


def _changed_questions(model: ScriptedModel, since: datetime) -> Iterator[str]:
    """Window, guarantee 2: the last message is included, and always fully. Not a blank of it is changed."""
    answered = Turn.objects.filter(
        started__gte=since, status=Turn.Status.DONE, model__provider__base_url__startswith=model.url
    )
    for turn in answered.select_related("user_message").defer("report"):
        text = turn.user_message.text
        if text and not model.was_asked(text) and not model.requests(text):
            yield f"the_question_is_whole: no prompt has the message {text[:200]!r}"
