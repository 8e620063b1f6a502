"""What a model is asked of a part, of the notes on several parts, and of all notes in the end."""

from collections.abc import Sequence

from chat.readings.planning import Budget, numbers_in, span_of
from llm.types.model_call import ModelMessage
from personas.texts import Texts

Messages = tuple[ModelMessage, ...]


def of_part(texts: Texts, question: str, title: str, passages: str, budget: Budget) -> Messages:
    """For notes on a part, whose `passages` are as `numbered` makes them."""
    given = texts.fill("reading_part_given", question=question, title=title, passages=passages)
    return ModelMessage("system", texts.fill("reading_part", tokens=budget.findings)), ModelMessage("user", given)


def of_fold(texts: Texts, question: str, title: str, notes: Sequence[str], budget: Budget) -> Messages:
    """For fewer notes that say the same."""
    return ModelMessage("system", texts.fill("reading_fold", tokens=budget.folded)), _noted(
        texts, question, title, notes
    )


def of_answer(texts: Texts, question: str, title: str, notes: Sequence[str], percent: int) -> Messages:
    """`percent` of the text were read."""
    unread = texts.fill("reading_unread", percent=percent) if percent < 100 else ""
    system = "\n\n".join(filter(None, (texts["reading_answer"], unread)))
    return ModelMessage("system", system), _noted(texts, question, title, notes)


def named(name: str, findings: str) -> str:
    """Notes below the name of what they are on; notes on the only file need none."""
    return f"## {name}\n{findings}" if name else findings


def _noted(texts: Texts, question: str, title: str, notes: Sequence[str]) -> ModelMessage:
    return ModelMessage("user", texts.fill("reading_notes", question=question, title=title, notes="\n\n".join(notes)))


def numbered(text: str, start: int, end: int, passages: Sequence[int]) -> str:
    """Characters [start, end) with the number of each passage above it."""
    return "\n\n".join(
        f"[{number}]\n{text[slice(*span_of(passages, number))].strip()}" for number in numbers_in(passages, start, end)
    )


def longest(texts: Texts, budget_tokens: int = 9_999) -> str:
    """The longest of the instructions with what stands around question and notes, to be counted."""
    around = {"question": "", "title": "", "passages": "", "notes": ""}
    parts = (
        texts.fill("reading_part", tokens=budget_tokens) + texts.fill("reading_part_given", **around),
        texts.fill("reading_fold", tokens=budget_tokens) + texts.fill("reading_notes", **around),
        texts["reading_answer"] + texts["reading_unread"] + texts.fill("reading_notes", **around),
    )
    return max(parts, key=len)
