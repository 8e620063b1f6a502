"""A second look at citations, by the model that the workspace names for it. The rules have looked first.

It finds what the rules do not, and may clear what they only found to speak of something else; a wrong number, name or
negation that they found stays. Whatever goes wrong with it leaves what the rules found, and a note.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_noop

from chat.citations.claims import MOST
from chat.citations.services import MAX_EVIDENCE, Check
from chat.citations.support import Reason
from chat.ledger.asking import Billing, ask
from core.background import on_database
from core.errors import ModelError, ProductError
from core.sentences import Sentence
from llm.models import Model
from llm.services import with_fallbacks
from llm.types.model_call import Message, ModelRequest, Usage
from personas.texts import Texts

CHECKED_WITHIN = 5.0  # seconds; an answer whose citations take longer ends unchecked
TIMEOUT = 20.0  # seconds for all sentences of an answer
AT_ONCE = 10  # sentences of one call
CALLS = MOST // AT_ONCE  # for one answer, at most
LONGEST_LINE = 60  # tokens of what is said of one sentence
ROOM_FOR_TEXTS = 1_000  # tokens that the instructions have, at most
ROOM_TO_THINK = 1_024  # tokens for a model that reasons first
MOST_WORDS = 200  # characters kept of why it says no
GONE = gettext_noop("The model that checks citations was removed or switched off, so they were checked without it.")

_LINE = re.compile(r"^[^\w\n]*(\d+)[^\w\n]+(yes|no)\b[^\w\n]*(.*)$", re.IGNORECASE | re.MULTILINE)

CheckedSentence = Mapping[str, Any]

logger = logging.getLogger(__name__)


def at_most() -> Usage:
    """What the check of one answer reads and writes at most, in `CALLS` calls."""
    read = ROOM_FOR_TEXTS + AT_ONCE * (MAX_EVIDENCE // 2 + LONGEST_LINE)
    return Usage(CALLS * read, CALLS * (ROOM_TO_THINK + LONGEST_LINE * AT_ONCE))


async def checked(
    find: Callable[[], list[Check]], charge: Billing, texts: Texts, named: UUID | None
) -> tuple[list[Check], Sentence | None]:
    """What `find` finds in the time there is for it, with what the model of this id says, if one is named; and why that
    said nothing. None of it may cost anybody the answer: what goes wrong leaves it unchecked."""
    try:
        found = await asyncio.wait_for(on_database(find), CHECKED_WITHIN)
    except Exception:
        logger.exception("the citations of an answer could not be checked")
        return [], None
    return await judged(found, charge, texts, named) if found and named is not None else (found, None)


async def judged(found: list[Check], charge: Billing, texts: Texts, named: UUID) -> tuple[list[Check], Sentence | None]:
    """The checks with what the model of this id says; and a sentence that says why it said nothing, if it did not."""
    model = await on_database(lambda: Model.objects.usable().filter(pk=named).first())
    if model is None:
        return found, Sentence(GONE)
    sentences = [sentence for each in found for sentence in (*each.doubts, *each.carried)]
    try:
        async with asyncio.timeout(TIMEOUT):
            said = await with_fallbacks(model, partial(_answers, sentences, charge, texts))
    except TimeoutError:
        return found, _without(model.name, Sentence("The model took too long to answer."))
    except ProductError as error:
        return found, _without(model.name, error.sentence)
    answers = iter(said)
    return [combined(each, [next(answers) for _ in (*each.doubts, *each.carried)]) for each in found], None


def _without(name: str, why: Sentence) -> Sentence:
    return Sentence(
        "The model {name}, which checks citations, did not (“{why}”), so they were checked without it.",
        name=name,
        why=why,
    )


async def _answers(
    sentences: Sequence[CheckedSentence], charge: Billing, texts: Texts, model: Model, patience: float | None
) -> list[str | None]:
    """Of each sentence why it is not carried, None where it is. Raises `ProductError`."""
    answers: list[str | None] = []
    for first in range(0, len(sentences), AT_ONCE):
        batch = sentences[first : first + AT_ONCE]
        request = ModelRequest(
            model=model.name,
            messages=(Message("system", texts["citation_check"]), Message("user", asked(batch))),
            max_output=min(ROOM_TO_THINK + LONGEST_LINE * len(batch), model.max_output or model.window, model.window),
            window=model.window,
        )
        said = await ask(model, request, charge, longest=400 * AT_ONCE, patience=patience)
        answers += read("" if said.unread else said.text, len(batch))
    return answers


def asked(sentences: Iterable[CheckedSentence]) -> str:
    """What the model is given: each sentence, numbered from 1, with the passage that it was held against."""
    return "\n\n".join(
        f"{number}.\nSentence: {each['sentence']}\nPassage: {each['evidence']}"
        for number, each in enumerate(sentences, 1)
    )


def read(said: str, count: int) -> list[str | None]:
    """What `said` has of each of so many sentences, as `_answers` gives it. Raises `ModelError` unless it has all."""
    found = {int(number): (word.lower(), why.strip()) for number, word, why in _LINE.findall(said)}
    if not set(range(1, count + 1)) <= found.keys():
        sentence = Sentence("It did not say yes or no of every sentence.")
        raise ModelError("citations_not_judged", sentence, retryable=False)
    return [None if found[at][0] == "yes" else found[at][1][:MOST_WORDS] for at in range(1, count + 1)]


def combined(check: Check, answers: Sequence[str | None]) -> Check:
    """What the rules and the model have found together; `answers` are of the doubted sentences, then of the others."""
    doubts, carried = list[dict[str, Any]](), list[dict[str, Any]]()
    for sentence, why in zip((*check.doubts, *check.carried), answers, strict=True):
        reasons = list(sentence["reasons"])
        if why is not None:
            reasons.append({"reason": str(Reason.MODEL), "words": why})
        elif all(each["reason"] == Reason.ABSENT for each in reasons):
            reasons = []
        (doubts if reasons else carried).append({**sentence, "reasons": reasons})
    return replace(check, doubts=sorted(doubts, key=lambda each: int(each["citation"])), carried=carried)
