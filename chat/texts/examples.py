"""Build example prompts that contain a text, for administrators who edit that text.

1. `example` encloses the text in two marks, `BEGINS` and `ENDS`.
2. It builds messages with the functions that build the prompts of users.
3. It splits the messages at the marks, so the page can highlight the text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from chat.citations import judging
from chat.citations.services import SentenceAndPassage
from chat.context.build import build, required_tokens
from chat.context.rendering import (
    CallState,
    CitationNumbers,
    DateAwareness,
    ToolGuidance,
    asked_at_text,
    documents_text,
    reminder_text,
    system_text,
)
from chat.context.types import (
    Block,
    ContextMessage,
    ContextRequest,
    Document,
    ImageRef,
    Memory,
    MemoryFact,
    PromptMessage,
    Room,
)
from chat.memory.passes import pass_prompt
from chat.models import Summary
from chat.models.summary import text_of
from chat.prompts.files import BY_SEARCH, FOUND, NOT_SHOWN, listing_line, listing_text
from chat.prompts.wording import SECTIONS
from chat.readings import asking
from chat.readings.planning import Budget
from chat.runs import prompts
from chat.summaries.writing import DEFAULT_PROMPT, conversation_text, summary_form
from files.models import File
from llm import tokens
from llm.types.model_call import StoredResult, ToolCall
from personas.texts import (
    CITATIONS,
    FILES_ALONE,
    IN_PROMPTS,
    PROPOSALS,
    READINGS,
    SCANS,
    SHORTER,
    SUMMARIES,
    TEXTS,
    TITLES,
    Texts,
    TextVersion,
)
from projects.planner.models.task import Task
from projects.planner.queries import PromptTasks, render

BEGINS = "\ue000"  # the marks are private-use characters, which no text contains
ENDS = "\ue001"
AT = datetime(2026, 11, 21, 14, 5, tzinfo=UTC)
DAY = date(2026, 11, 21)
TOOL_LIST = "- crm__find_customer: Finds a customer by name.\n- crm__add_note: Adds a note to a customer."
TOOLS = tuple(
    ToolGuidance(name.removeprefix("guidance_"), is_search=True, listing=TOOL_LIST)
    for name in TEXTS
    if name.startswith("guidance_")
)
SYSTEM = "You help a team that makes chocolate. Be exact, and say when you do not know something."
CUT_RESULTS = ("tool_result_cut", "tool_result_kept")
LONG_TEXT = " ".join(f"Line {number}: {number * 17 % 100} kg of cacao." for number in range(1, 120))
REPORT = Document("3f2a", "Harvest report.pdf", LONG_TEXT, 40_000)
OLDER: Sequence[ContextMessage] = (
    ContextMessage("1", "user", "How much cacao did we buy last year?", 20_000),
    ContextMessage("2", "assistant", "About 4,100 kg.", 20_000),
    ContextMessage("3", "user", "What does the report say of the harvest?", files=(REPORT,)),
    ContextMessage("4", "assistant", "It was better than the year before."),
    ContextMessage("5", "user", "Which of our recipes have hazelnuts?"),
    ContextMessage("6", "assistant", tool_calls=(ToolCall("a", "search_files", '{"query": "hazelnuts"}'),)),
    ContextMessage("7", "tool", "Gianduja, Rocher and Nocciola.", tool_call_id="a"),
)


class ExampleMessage(NamedTuple):
    """Message of an example.

    `section`: its section of the prompt; empty for calls outside a conversation. `pieces`: its text in pieces, each
    with True if the piece belongs to the edited text.
    """

    section: str
    role: str
    pieces: list[tuple[str, bool]]

    @property
    def where(self) -> str:
        return f"{SECTIONS[self.section]} · {self.role}" if self.section else self.role

    @property
    def marked(self) -> bool:
        return any(edited for _, edited in self.pieces)


def example(name: str, texts: Texts) -> list[ExampleMessage]:
    """Return the messages of a prompt that contains the text `name`. Nothing is marked if the text is empty."""
    marked = Texts({**texts.own, name: TextVersion(0, f"{BEGINS}{texts[name]}{ENDS}")}) if texts[name] else texts
    return [ExampleMessage(section, role, _pieces(text)) for section, role, text in _example_rows(name, marked)]


def _example_rows(name: str, texts: Texts) -> Iterable[tuple[str, str, str]]:
    """Return (section, role, text) of each message."""
    group = TEXTS[name].group
    if group in IN_PROMPTS:
        return [(sent.section, sent.role, sent.text or _calls_as_text(sent)) for sent in _prompt(name, texts)]
    if group == TITLES:
        return [("", "system", texts["title"]), ("", "user", f"{OLDER[4].text}\n\nGianduja, Rocher and Nocciola.")]
    if group == CITATIONS:
        sentence = SentenceAndPassage(sentence="A box holds twelve.", evidence="A box holds nine.")
        return [("", "system", texts[name]), ("", "user", judging.question_about([sentence]))]
    if group == SUMMARIES:
        return _summary(name, texts)
    if group == SHORTER:
        before = [("history", str(message.role), message.text or "") for message in OLDER[2:4]]
        return [*before, ("current", "user", texts[name])]
    if group == FILES_ALONE:
        files = documents_text([REPORT], CitationNumbers({}), texts)
        return [("file", "user", files), ("current", "user", texts[name])]
    if group == SCANS:
        return [("", "user", texts["page_read"])]
    if group == PROPOSALS:
        return [("", message.role, message.text) for message in pass_prompt(["I moved to Hue in May."], texts)]
    if group == READINGS:
        return [("", message.role, message.text) for message in _reading(name, texts)]
    return [("", "user", _run_message(name, texts))]


def _pieces(text: str) -> list[tuple[str, bool]]:
    pieces: list[tuple[str, bool]] = []
    for number, part in enumerate(text.split(BEGINS)):
        inside, _, after = part.partition(ENDS) if number else ("", "", part)
        pieces += [(piece, edited) for piece, edited in ((inside, True), (after, False)) if piece]
    return pieces


def _calls_as_text(sent: PromptMessage) -> str:
    return ", ".join(f"{call.name}({call.arguments})" for call in sent.tool_calls)


def _prompt(name: str, texts: Texts) -> list[PromptMessage]:
    """Return a prompt of a turn. For texts about truncation, the room is too small, so that something is cut."""
    awareness: DateAwareness = "minute" if name == "minute" else "day"
    is_last_step = name == "last_step"
    available = frozenset() if is_last_step else frozenset(tool.name for tool in TOOLS)
    call_state = CallState(
        "near_end",
        AT,
        awareness,
        TOOLS,
        available,
        searched=True,
        texts=texts,
        web_unopened=True,
        note_form="tags" if name == "notes" else "heading",
    )
    reminders = [texts["last_step"]] if is_last_step else ["Answer in the language of the question."]
    if name in ("tasks_unknown", "tasks_hidden"):
        reminders.append(texts.fill(name, tasks="@D2026-11-20-T09"))
    system = f"{SYSTEM} {LONG_TEXT}" if name == "system_cut" else SYSTEM
    reminder = (
        asked_at_text(call_state) if name == "asked_at" else reminder_text(list(filter(None, reminders)), call_state)
    )
    request = ContextRequest(
        room=Room(30_000),
        messages=list(_messages(name, texts)),
        tokenizer=tokens.tokenizer(tokens.CATCH_ALL),
        policy="priority" if name == "system_cut" else "recent",
        system=Block(system_text(system, call_state)),
        tasks=Block(render(_tasks(), texts)),
        summary=Block(text_of(_stored_summary(), texts)),
        persona=Block(_instructions(texts)),
        memory=_memory(texts),
        file_listing=Block(_listing(name, texts)),
        reminder=Block(reminder),
        texts=texts,
        project_images=(ImageRef("2b7e", 100, title="Boxes.jpg"),) if name == "project_images" else (),
        max_images=1,
    )
    if name in ("system_cut", *CUT_RESULTS):
        needed = required_tokens(replace(request, policy="recent"))
        request = replace(request, room=Room(needed - 600, reserved_output=0, buffer=0))
    return build(request).messages


def _instructions(texts: Texts) -> str:
    persona = (texts.fill("persona_heading", name="Ana"), "Answer as our head of purchasing would.")
    project = (texts.fill("project_heading", name="Christmas"), "Prices are in euros.")
    return "\n".join(filter(None, (*persona, *project)))


def _memory(texts: Texts) -> Memory:
    about = texts.fill("memory_about", text="I run the shop in Hue.")
    answering = texts.fill("memory_answering", text="In short sentences.")
    fact = MemoryFact("8c55", "Allergic to hazelnuts.", "matches")
    return Memory(texts["memory"], f"{about}\n{answering}", (fact,))


def _messages(name: str, texts: Texts) -> Iterable[ContextMessage]:
    yield from OLDER
    ending_note = name if name in ("answer_stopped", "answer_broke_off") else ""
    answer = "All three are sold in boxes of nine."
    if ending_note:
        answer += f"\n\n{texts[ending_note]}"
    yield ContextMessage("8", "assistant", "Gianduja, Rocher and Nocciola.")
    photos = (ImageRef("4f0a", 100, title="Window.jpg"), ImageRef("4f0b", 100, title="Counter.jpg"))
    yield ContextMessage("9", "user", "How are they sold?", images=photos if name == "image_stub" else ())
    yield ContextMessage("10", "assistant", answer)
    picture = Document("7c1d", "Shelf.jpg", texts["image_unseen"])
    note = Document("9b04", "Prices.txt", "Gianduja 9.50, Rocher 11.00, Nocciola 10.20")
    missing = ("Prices of 2019.txt",) if name == "file_missing" else ()
    yield ContextMessage("11", "user", "What does a box of each cost?", files=(note, picture), missing_files=missing)
    yield ContextMessage("12", "assistant", tool_calls=(ToolCall("b", "web_search", '{"queries": ["box of nine"]}'),))
    text = LONG_TEXT if name in CUT_RESULTS else "A box holds nine."
    stored = (
        StoredResult(tokens=0, characters=len(text), stored=len(text), id="5e1f") if name == CUT_RESULTS[1] else None
    )
    window = (ImageRef("6e20", 100, title="Window.png"),) if name == "result_images" else ()
    yield ContextMessage("13", "tool", text, tool_call_id="b", result=stored, images=window)


def _tasks() -> PromptTasks:
    today = _task("D2026-11-21-T01", "Order hazelnuts")
    mentioned = _task("M2026-11-T02", "Plan the shop in December")
    return PromptTasks(DAY, (today,), (mentioned,))


def _task(code: str, title: str, notes: str = "") -> Task:
    row = Task(code=code, title=title, archetype="hybrid", status=Task.Status.OPEN, notes=notes)
    row.checklist = []
    return row


def _stored_summary() -> Summary:
    sections = [{"name": "Today", "text": "They chose three kinds of truffles for the shop."}]
    return Summary(sections=sections, span_end=AT.replace(hour=11), as_of=AT.replace(hour=12), timezone="UTC")


def _listing(name: str, texts: Texts) -> str:
    files = (replace(REPORT, text=None), Document("51aa", "Shelf in 2019.jpg"))
    more = texts.fill("more_files", count=12)
    header = name if name in (FOUND, NOT_SHOWN) else BY_SEARCH
    numbers = CitationNumbers()
    states = {"file_line_waiting": File.Index.WAITING, "file_line_unindexed": File.Index.FAILED}
    state = states.get(name, File.Index.SEARCHABLE)
    lines = "\n".join([*(listing_line(file, numbers, texts, state) for file in files), more])
    return listing_text({"project": header}, {"project": lines}, "", texts)


def _summary(name: str, texts: Texts) -> Iterable[tuple[str, str, str]]:
    system = f"{DEFAULT_PROMPT}\n\n{summary_form(1_200, AT - timedelta(days=40), AT, texts)}"
    if name == "summary_again":
        system += f"\n\n{texts.fill('summary_again', problem='It was cut off before its end.')}"
    yield "", "system", system
    messages = (f"[2026-11-21 13:02] Person:\n{OLDER[0].text}", f"[2026-11-21 13:02] Assistant:\n{OLDER[1].text}")
    yield "", "user", conversation_text(text_of(_stored_summary(), texts), messages, texts)


def _reading(name: str, texts: Texts) -> asking.Messages:
    question = OLDER[2].text or ""
    title = REPORT.title
    budget = Budget(
        part=16_000,
        fold=20_000,
        notes=20_000,
        answer=4_000,
        findings=1_000,
        folded=2_000,
        thinking=0,
        overhead=0,
    )
    if name.startswith("reading_part"):
        passages = asking.number_passages("The harvest was better than last year.", 0, 39, [39])
        return asking.part_prompt(texts, question, title, passages, budget)
    notes = ["- The harvest was better than last year [1].", "- 4,100 kg of cacao were bought [7][9]."]
    if name == "reading_fold":
        return asking.fold_prompt(texts, question, title, notes, budget)
    return asking.answer_prompt(texts, question, title, notes, 97)


def _run_message(name: str, texts: Texts) -> str:
    again = name.endswith("_again")
    row = _task("D2026-11-21-T02", "Describe the new truffles", notes="For the shop.")
    if name.startswith("run_item"):
        row = _task("D2026-11-21-T02.C01", "Write three sentences", notes="One for each kind.")
        return prompts.item_message(row, texts, again=again, reply="")
    return prompts.draft_message(row, texts, again=again, reply="")
