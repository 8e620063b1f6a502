"""The prompts of a reading: for notes on a part, for a fold of several notes, and for the answer from all notes."""

from collections.abc import Sequence

from chat.readings.planning import Budget, passage_numbers, passage_span
from llm.types.model_call import ModelMessage
from personas.texts import Texts

Messages = tuple[ModelMessage, ...]


def part_prompt(texts: Texts, question: str, title: str, passages: str, budget: Budget) -> Messages:
    """Return the prompt for notes on a part. `passages`: the output of `number_passages`."""
    part = texts.fill("reading_part_given", question=question, title=title, passages=passages)
    return ModelMessage("system", texts.fill("reading_part", tokens=budget.findings)), ModelMessage("user", part)


def fold_prompt(texts: Texts, question: str, title: str, notes: Sequence[str], budget: Budget) -> Messages:
    """Return the prompt that folds several notes into shorter ones."""
    return ModelMessage("system", texts.fill("reading_fold", tokens=budget.folded)), _notes_message(
        texts, question, title, notes
    )


def answer_prompt(texts: Texts, question: str, title: str, notes: Sequence[str], percent: int) -> Messages:
    """Return the prompt for the answer from all notes. `percent`: how much of the text was read."""
    unread = texts.fill("reading_unread", percent=percent) if percent < 100 else ""
    system = "\n\n".join(filter(None, (texts["reading_answer"], unread)))
    return ModelMessage("system", system), _notes_message(texts, question, title, notes)


def with_file_name(name: str, findings: str) -> str:
    """Return the notes below the name of their file. `name` is empty if there is only one file."""
    return f"## {name}\n{findings}" if name else findings


def _notes_message(texts: Texts, question: str, title: str, notes: Sequence[str]) -> ModelMessage:
    return ModelMessage("user", texts.fill("reading_notes", question=question, title=title, notes="\n\n".join(notes)))


def number_passages(text: str, start: int, end: int, passages: Sequence[int]) -> str:
    """Return characters [start, end) with the number of each passage above it."""
    return "\n\n".join(
        f"[{number}]\n{text[slice(*passage_span(passages, number))].strip()}"
        for number in passage_numbers(passages, start, end)
    )


def longest_instructions(texts: Texts, budget_tokens: int = 9_999) -> str:
    """Return the longest of the three prompts without question, title, passages and notes, to count its tokens."""
    part = texts.fill("reading_part_given", question="", title="", passages="")
    notes = texts.fill("reading_notes", question="", title="", notes="")
    prompts = (
        texts.fill("reading_part", tokens=budget_tokens) + part,
        texts.fill("reading_fold", tokens=budget_tokens) + notes,
        texts["reading_answer"] + texts["reading_unread"] + notes,
    )
    return max(prompts, key=len)
