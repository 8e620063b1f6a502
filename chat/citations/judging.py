"""Let a model check citations after the rules have checked them.

The workspace chooses the model. The model may add doubts. It may remove a doubt only if the rules found nothing more
than that the passage is about something else. A wrong number, name or negation stays a doubt. If the model fails, the
result of the rules stays, with a note.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from django.utils.translation import gettext_noop

from chat.citations.claims import MAX_CLAIMS
from chat.citations.differences import DoubtKind
from chat.citations.services import MAX_EVIDENCE, PartCheck, SentenceAndPassage
from chat.ledger.asking import Billing, ask
from chat.models.parts import CitationDoubt
from core.background import on_database
from core.errors import ModelError, ProductError
from core.sentences import Sentence
from llm.models import Model
from llm.services import with_fallbacks
from llm.types.model_call import ModelMessage, ModelRequest, Usage
from personas.texts import Texts

RULES_TIMEOUT = 5.0  # seconds; if the check takes longer, the answer stays unchecked
MODEL_TIMEOUT = 20.0  # seconds for all sentences of an answer
BATCH = 10  # sentences per call
MAX_CALLS = MAX_CLAIMS // BATCH  # calls per answer
MAX_LINE_LENGTH = 60  # tokens of the model's line about one sentence
INSTRUCTION_TOKENS = 1_000  # tokens of the longest instructions
REASONING_TOKENS = 1_024  # for a model that reasons first
MAX_REASON_LENGTH = 200  # characters of the model's reason that are stored
MODEL_REMOVED = gettext_noop(
    "The model that checks citations was removed or switched off, so they were checked without it."
)

_LINE = re.compile(r"^[^\w\n]*(\d+)[^\w\n]+(yes|no)\b[^\w\n]*(.*)$", re.IGNORECASE | re.MULTILINE)

logger = logging.getLogger(__name__)


def largest_usage() -> Usage:
    """Return the most tokens that the check of one answer may read and write, in `MAX_CALLS` calls."""
    input_tokens = INSTRUCTION_TOKENS + BATCH * (MAX_EVIDENCE // 2 + MAX_LINE_LENGTH)
    return Usage(MAX_CALLS * input_tokens, MAX_CALLS * (REASONING_TOKENS + MAX_LINE_LENGTH * BATCH))


async def check_in_time(
    check: Callable[[], list[PartCheck]], charge: Billing, texts: Texts, checker: UUID | None
) -> tuple[list[PartCheck], Sentence | None]:
    """Run the rules (`check`) within `RULES_TIMEOUT`, then ask the model `checker` to judge, if there is one.

    Return the checks, and a note if the model failed. Never raises. If the rules fail, the answer stays unchecked.
    """
    try:
        checks = await asyncio.wait_for(on_database(check), RULES_TIMEOUT)
    except Exception:
        logger.exception("the citations of an answer could not be checked")
        return [], None
    return await judge(checks, charge, texts, checker) if checks and checker is not None else (checks, None)


async def judge(
    checks: list[PartCheck], charge: Billing, texts: Texts, checker: UUID
) -> tuple[list[PartCheck], Sentence | None]:
    """Return the checks combined with the model's judgement. If the model failed, return them unchanged with a note."""
    model = await on_database(lambda: Model.objects.usable().filter(pk=checker).first())
    if model is None:
        return checks, Sentence(MODEL_REMOVED)
    sentences = [sentence for each in checks for sentence in (*each.doubts, *each.supported)]
    try:
        async with asyncio.timeout(MODEL_TIMEOUT):
            all_answers = await with_fallbacks(model, partial(_ask, sentences, charge, texts))
    except TimeoutError:
        return checks, _failed(model.name, Sentence("The model took too long to answer."))
    except ProductError as error:
        return checks, _failed(model.name, error.sentence)
    answers = iter(all_answers)
    return [combine(each, [next(answers) for _ in (*each.doubts, *each.supported)]) for each in checks], None


def _failed(name: str, why: Sentence) -> Sentence:
    """Return the note that the model did not check the citations."""
    return Sentence(
        "The model {name}, which checks citations, failed (“{why}”), so they were checked without it.",
        name=name,
        why=why,
    )


async def _ask(
    sentences: Sequence[CitationDoubt], charge: Billing, texts: Texts, model: Model, patience: float | None
) -> list[str | None]:
    """Return the model's answer about each sentence: None if its passage supports it, else the reason.

    Raises `ProductError`.
    """
    answers: list[str | None] = []
    for first in range(0, len(sentences), BATCH):
        batch = sentences[first : first + BATCH]
        output_tokens = REASONING_TOKENS + MAX_LINE_LENGTH * len(batch)
        request = ModelRequest(
            model=model.name,
            messages=(ModelMessage("system", texts["citation_check"]), ModelMessage("user", question_about(batch))),
            max_output=min(output_tokens, model.max_output or model.window, model.window),
            window=model.window,
        )
        answer = await ask(model, request, charge, longest=400 * BATCH, patience=patience)
        answers += parse_answer("" if answer.unread else answer.text, len(batch))
    return answers


def question_about(sentences: Iterable[SentenceAndPassage]) -> str:
    """Return the message for the model: each sentence with its passage, numbered from 1."""
    return "\n\n".join(
        f"{number}.\nSentence: {each['sentence']}\nPassage: {each['evidence']}"
        for number, each in enumerate(sentences, 1)
    )


def parse_answer(text: str, count: int) -> list[str | None]:
    """Parse the model's answer about `count` sentences: None for “yes”, else the reason.

    Raises `ModelError` if the answer does not judge every sentence.
    """
    lines = {int(number): (word.lower(), why.strip()) for number, word, why in _LINE.findall(text)}
    if not set(range(1, count + 1)) <= lines.keys():
        sentence = Sentence("It did not say yes or no for every sentence.")
        raise ModelError("citations_not_judged", sentence, retryable=False)
    return [None if lines[at][0] == "yes" else lines[at][1][:MAX_REASON_LENGTH] for at in range(1, count + 1)]


def combine(check: PartCheck, answers: Sequence[str | None]) -> PartCheck:
    """Combine the result of the rules with the model's answers.

    `answers` are about the doubts first, then about the supported sentences.
    """
    doubts: list[CitationDoubt] = []
    supported: list[CitationDoubt] = []
    for sentence, why in zip((*check.doubts, *check.supported), answers, strict=True):
        reasons = list(sentence["reasons"])
        if why is not None:
            reasons.append({"reason": str(DoubtKind.MODEL), "words": why})
        elif all(each["reason"] == DoubtKind.ABSENT for each in reasons):
            reasons = []
        (doubts if reasons else supported).append({**sentence, "reasons": reasons})
    return replace(check, doubts=sorted(doubts, key=lambda each: each["citation"]), supported=supported)
