"""Rules of the documents in the order book that every prompt keeps.

The scripted model holds each prompt that it receives against them, and `tests/conftest.py` fails the test during which
a prompt broke one. The rules know nothing of the product's code: they come from Onyx's context management (“Onyx”), the
priority-based sliding window (“Window”) and WENDY's summaries and tasks (“Wendy”). They know the lines by which a
reader recognises a part of a prompt. `tests/kept_promises.py` has the rules that also need the workspace's rows.

To add a rule: 1. write a generator of sentences over a `Prompt`, with its source in the docstring; 2. add it to
`RULES`; 3. add a prompt that breaks it to `tests/core/test_seed_rules.py`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator

from .prompts import Prompt, PromptMessage

DOCUMENTS_LINE = "Here are some documents provided for context, they may not all be relevant:"
OMISSION_LINE = "[Earlier messages were left out to fit the context.]"
STUB = "This tool result is no longer available."
REMINDER_HEADING = "Reminder from the workspace, not written by the person:"
# Tools whose results are documents to cite, and all tools of the product: others are a program's or a server's.
SEARCHES = ("search_files", "read_file", "search_conversations", "web_search", "open_url")
TOOLS = {
    *SEARCHES,
    *(
        "search_conversation",
        "read_result",
        "list_tasks",
        "create_task",
        "draft_checklist",
        "mark_item",
        "ask_user",
        "remember",
    ),
}
_INSTRUCTIONS = re.compile(r"(?:<note>\n)?# (?:Persona|Instructions of the project) “")
_CITE = re.compile(r"\b[Cc]ite\b")
_DOCUMENT_KEYS = (["document", "title", "contents"], ["document", "title", "metadata", "contents"])
_DOCUMENTS = re.compile(r'\{"documents": \[.*\]\}')
_GUIDANCE = re.compile(r"^(\w+): ", re.MULTILINE)


def a_message_beside_the_system(prompt: Prompt) -> Iterator[str]:
    """Window, guarantee 1: at least one message is not the system's."""
    if all(message.role in ("system", "developer") for message in prompt.messages):
        yield "every message is a system message"


def the_newest_message_is_to_be_answered(prompt: Prompt) -> Iterator[str]:
    """Window, guarantee 2, and Onyx, “Reminders”: the prompt ends with the request, a tool's result or a reminder.

    An answer in which the model paused is sent back as it is.
    """
    last = prompt.messages[-1] if prompt.messages else None
    if last is not None and last.role not in ("user", "tool") and not last.paused:
        yield f"the last message is of the role {last.role}"


def the_system_comes_first(prompt: Prompt) -> Iterator[str]:
    """Window, guarantee 5, and Wendy, “Overview”: system, tasks and summary stand before the conversation."""
    roles = [message.role for message in prompt.messages]
    if "system" in roles and roles[0] != "system":
        yield f"a system message follows a message of the role {roles[0]}"
    first_answer = roles.index("assistant") if "assistant" in roles else len(roles)
    if "system" in roles[first_answer:]:
        yield "a system message stands within the conversation"


def tasks_come_before_the_summary(prompt: Prompt) -> Iterator[str]:
    """Wendy, “Overview”: core prefix prompt, task manager prompt, summarising prompt."""
    tasks = prompt.system.find("\nTasks of today, ")
    summary = prompt.system.find("Summary of this conversation up to ")
    if -1 < summary < tasks:
        yield "the summary stands above the tasks"
    if summary == 0 and len(prompt.system) > 2_000:
        yield "the summary stands above the system prompt"


def questions_and_answers_alternate(prompt: Prompt) -> Iterator[str]:
    """Wendy, “Overview”: the chat between user and model. An answer follows a question or the results of its calls."""
    before: PromptMessage | None = None
    for message in prompt.messages:
        if before is not None and before.role == message.role == "assistant" and not before.calls and not message.calls:
            yield f"an answer follows an answer: {message.text[:80]!r}"
        before = message


def calls_and_results_stay_together(prompt: Prompt) -> Iterator[str]:
    """Onyx, “Examples”: TC is followed by its TR. A result without its call, or a call without result, is an error."""
    waiting: Counter[str] = Counter()
    for message in prompt.messages:
        if message.role == "tool":
            if not waiting[str(message.answers)]:
                yield f"the result {message.answers} has no call directly before it"
            waiting[str(message.answers)] -= 1
            continue
        if waiting and (unanswered := list((+waiting).elements())):
            yield f"the calls {unanswered} have no result before a message of the role {message.role}"
        if waiting or message.calls:
            waiting = Counter(call.id for call in message.calls)
    if unanswered := list((+waiting).elements()):
        yield f"the calls {unanswered} have no result at the end"


def documents_are_json_with_numbers(prompt: Prompt) -> Iterator[str]:
    """Onyx, “How documents are represented”: a line, then JSON; one number is one document."""
    titles: dict[int, str] = {}
    for message in prompt.messages:
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


def documents_of_a_turn_are_one_message(prompt: Prompt) -> Iterator[str]:
    """Onyx, “How documents are represented”: documents of one turn are one message; P may stand beside F."""
    in_a_row = 0
    for message in prompt.messages:
        in_a_row = in_a_row + 1 if message.role == "user" and DOCUMENTS_LINE in message.text else 0
        if in_a_row > 2:
            yield "three messages with documents follow one another"


def results_have_no_line_above_their_documents(prompt: Prompt) -> Iterator[str]:
    """Onyx, “How documents are represented”: for search results it is just the JSON."""
    for message in prompt.messages:
        if message.role == "tool" and message.text.startswith(DOCUMENTS_LINE):
            yield "a tool's result begins with the line of files"


def files_stand_above_a_message(prompt: Prompt) -> Iterator[str]:
    """Onyx, “Flow with Project and File Upload”: P and F are above the user's message, which they move up with."""
    for message, following in zip(prompt.messages, (*prompt.messages[1:], None), strict=True):
        line, _, rest = message.text.partition("\n")
        if message.role != "user" or line != DOCUMENTS_LINE or "\n" in rest:
            continue  # other texts, or files and their message in one, for servers that want the roles to alternate
        if following is None or following.role in ("assistant", "tool"):
            yield f"files stand above {following.role if following else 'nothing'}"


def instructions_move_along(prompt: Prompt) -> Iterator[str]:
    """Onyx, “Custom Agent Prompt”: it is one message above the newest user message, or in a layout for caches above the
    conversation; it stays nowhere in between."""
    places = [n for n, each in enumerate(prompt.messages) if each.role == "user" and _INSTRUCTIONS.match(each.text)]
    roles = [message.role for message in prompt.messages]
    first_answer = roles.index("assistant") if "assistant" in roles else len(roles)
    if len(places) > 1:
        yield f"the instructions are sent {len(places)} times"
    for place in places:
        if first_answer < place < prompt.current:
            yield "the instructions stand within the conversation"


def results_of_older_turns_are_stubs(prompt: Prompt) -> Iterator[str]:
    """Onyx, “Tool Calls”: the response is replaced by a line once the turn is over; the call is kept."""
    names = {call.id: call.name for message in prompt.messages for call in message.calls}
    for message in prompt.messages[: prompt.current]:
        if message.role == "tool" and names.get(message.answers or "") in TOOLS and message.text != STUB:
            yield f"an older turn has the result {message.text[:80]!r}"


def citations_are_asked_for_after_a_search(prompt: Prompt) -> Iterator[str]:
    """Onyx, “System Prompt” and “Reminders”: after a search the system prompt has a section on citations, and a
    reminder stands at the end until the turn is over. In a prompt for a small model it stands above the question."""
    turn = prompt.messages[prompt.current :]
    names = {call.id: call.name for message in turn for call in message.calls}
    results = [n for n, each in enumerate(turn) if each.role == "tool" and names.get(each.answers or "") in SEARCHES]
    if not any('{"documents": [{' in turn[n].text for n in results):
        return
    if not _CITE.search(prompt.system):
        yield "the system prompt does not say how to cite"
    first_call = next(n for n, each in enumerate(turn) if each.calls)
    asks = [n for n, each in enumerate(turn) if each.role == "user" and _CITE.search(each.text)]
    if not asks or (asks[-1] > first_call and asks[-1] != len(turn) - 1):
        yield "no reminder of citations at the end"


def documents_of_the_newest_turn_are_to_be_cited(prompt: Prompt) -> Iterator[str]:
    """Onyx, “How documents are represented”: a document has a number so that the model can cite it."""
    turn = prompt.messages[prompt.current :]
    has_documents = any(each.role == "user" and each.text.startswith(DOCUMENTS_LINE) for each in turn)
    if has_documents and not _CITE.search(prompt.system):
        yield "there are documents, and the system prompt does not say how to cite"


def reminders_are_of_the_newest_turn(prompt: Prompt) -> Iterator[str]:
    """Onyx, “Reminders”: a reminder stands at the very end of the context, not in the turns before."""
    for message in prompt.messages[: prompt.current]:
        if message.role == "user" and message.text.startswith(REMINDER_HEADING):
            yield "a reminder stands in an older turn"


def guidance_is_for_tools_that_are_offered(prompt: Prompt) -> Iterator[str]:
    """Onyx, “System Prompt”: when to use a tool, depending on whether it is available in that cycle."""
    section = prompt.system.partition("# Tools\n")[2].partition("\n\n")[0]
    lacking = sorted({name for name in _GUIDANCE.findall(section) if name in TOOLS} - {*prompt.tools})
    if prompt.tools and lacking:
        yield f"the system prompt says when to call {', '.join(lacking)}"


def one_line_for_what_was_left_out(prompt: Prompt) -> Iterator[str]:
    """One gap is named once, at its place."""
    count = sum(message.role == "user" and message.text == OMISSION_LINE for message in prompt.messages)
    if count > 1:
        yield f"{count} lines say that messages were left out"


RULES: tuple[Callable[[Prompt], Iterator[str]], ...] = (
    a_message_beside_the_system,
    the_newest_message_is_to_be_answered,
    the_system_comes_first,
    tasks_come_before_the_summary,
    questions_and_answers_alternate,
    calls_and_results_stay_together,
    documents_are_json_with_numbers,
    documents_of_a_turn_are_one_message,
    results_have_no_line_above_their_documents,
    files_stand_above_a_message,
    instructions_move_along,
    results_of_older_turns_are_stubs,
    citations_are_asked_for_after_a_search,
    documents_of_the_newest_turn_are_to_be_cited,
    reminders_are_of_the_newest_turn,
    guidance_is_for_tools_that_are_offered,
    one_line_for_what_was_left_out,
)


def broken_rules(prompt: Prompt) -> list[str]:
    """Return a sentence for each rule that the prompt breaks."""
    return [f"{rule.__name__}: {sentence}" for rule in RULES for sentence in rule(prompt)]
