"""Rules of the documents in the order book that every prompt keeps, whatever is configured.

The scripted model holds each prompt that it receives against them, and `tests/conftest.py` fails the test during which
a prompt broke one. The rules know nothing of the product's code: they come from Onyx's context management (“Onyx”), the
priority-based sliding window (“Window”) and WENDY's summaries and tasks (“Wendy”).

To add a rule: 1. write a generator of sentences over `Sequence[PromptMessage]`, with its source in the docstring; 2.
add it to `RULES`; 3. add a prompt that breaks it to `tests/core/test_seed_rules.py`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DOCUMENTS_LINE = "Here are some documents provided for context, they may not all be relevant:"
OMISSION_LINE = "[Earlier messages were left out to fit the context.]"
_DOCUMENT_KEYS = (["document", "title", "contents"], ["document", "title", "metadata", "contents"])
_DOCUMENTS = re.compile(r'\{"documents": \[.*\]\}')


@dataclass(frozen=True)
class PromptMessage:
    """One message of Chat Completions: the ids of its calls, or the id of the call that it answers."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    answers: str | None = None


def _as_message(message: Mapping[str, Any]) -> PromptMessage:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    text = "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
    calls = tuple(str(call.get("id")) for call in message.get("tool_calls") or ())
    return PromptMessage(str(message.get("role")), text, calls, message.get("tool_call_id"))


def a_message_beside_the_system(messages: Sequence[PromptMessage]) -> Iterator[str]:
    """Window, guarantee 1: at least one message is not the system's."""
    if all(message.role in ("system", "developer") for message in messages):
        yield "every message is a system message"


def the_newest_message_is_to_be_answered(messages: Sequence[PromptMessage]) -> Iterator[str]:
    """Window, guarantee 2, and Onyx, “Reminders”: the prompt ends with the request, a tool's result or a reminder."""
    if messages and messages[-1].role not in ("user", "tool"):
        yield f"the last message is of the role {messages[-1].role}"


def the_system_comes_first(messages: Sequence[PromptMessage]) -> Iterator[str]:
    """Window, guarantee 5, and Wendy, “Overview”: system, tasks and summary stand before the conversation."""
    roles = [message.role for message in messages]
    if "system" in roles and roles[0] != "system":
        yield f"a system message follows a message of the role {roles[0]}"
    first_answer = roles.index("assistant") if "assistant" in roles else len(roles)
    if "system" in roles[first_answer:]:
        yield "a system message stands within the conversation"


def calls_and_results_stay_together(messages: Sequence[PromptMessage]) -> Iterator[str]:
    """Onyx, “Examples”: TC is followed by its TR. A result without its call, or a call without result, is an error."""
    waiting: Counter[str] = Counter()
    for message in messages:
        if message.role == "tool":
            if not waiting[str(message.answers)]:
                yield f"the result {message.answers} has no call directly before it"
            waiting[str(message.answers)] -= 1
            continue
        if unanswered := list((+waiting).elements()):
            yield f"the calls {unanswered} have no result before a message of the role {message.role}"
        waiting = Counter(message.calls)
    if unanswered := list((+waiting).elements()):
        yield f"the calls {unanswered} have no result at the end"


def documents_are_json_with_numbers(messages: Sequence[PromptMessage]) -> Iterator[str]:
    """Onyx, “How documents are represented”: a line, then JSON; one number is one document."""
    titles: dict[int, str] = {}
    for message in messages:
        if message.role == "assistant" or '{"documents": [' not in message.text:
            continue
        for text in _DOCUMENTS.findall(message.text):
            try:
                documents = json.loads(text)["documents"]
            except ValueError:
                continue  # a person's own text, or a result that was shortened
            for document in documents:
                if list(document) not in _DOCUMENT_KEYS:
                    yield f"a document has the keys {list(document)}"
                    continue
                number, title = document["document"], document["title"]
                if titles.setdefault(number, title) != title:
                    yield f"the number {number} stands for {titles[number]!r} and for {title!r}"


def documents_of_a_turn_are_one_message(messages: Sequence[PromptMessage]) -> Iterator[str]:
    """Onyx, “How documents are represented”: documents of one turn are one message; P may stand beside F."""
    in_a_row = 0
    for message in messages:
        in_a_row = in_a_row + 1 if message.role == "user" and DOCUMENTS_LINE in message.text else 0
        if in_a_row > 2:
            yield "three messages with documents follow one another"


def one_line_for_what_was_left_out(messages: Sequence[PromptMessage]) -> Iterator[str]:
    """One gap is named once, at its place."""
    count = sum(message.role == "user" and message.text == OMISSION_LINE for message in messages)
    if count > 1:
        yield f"{count} lines say that messages were left out"


RULES: tuple[Callable[[Sequence[PromptMessage]], Iterator[str]], ...] = (
    a_message_beside_the_system,
    the_newest_message_is_to_be_answered,
    the_system_comes_first,
    calls_and_results_stay_together,
    documents_are_json_with_numbers,
    documents_of_a_turn_are_one_message,
    one_line_for_what_was_left_out,
)


def broken_rules(body: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each rule that the prompt of a Chat Completions request breaks."""
    messages = [_as_message(message) for message in body.get("messages") or () if isinstance(message, Mapping)]
    return [f"{rule.__name__}: {sentence}" for rule in RULES for sentence in rule(messages)]
