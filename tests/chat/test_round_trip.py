"""Export everything, import it as another person, and compare the rows.

The comparison reads the rows by itself. It shares no code with export and import.
"""

import io
import json
import zipfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from accounts.models import User
from chat.conversations.export import _zip, export
from chat.conversations.importing import jobs
from chat.memory.models import Fact, Profile
from chat.memory.services import FactScope, ProfileFields, add_fact, save_profile
from chat.models import Attachment, Conversation, Import, Mark, Message, Summary, Tag, Turn
from chat.prompts import inspector
from core.sentences import Sentence
from files.models import File, FileText
from files.services import open_blob, store
from llm.models import FavouriteModel, Model, Provider
from personas.models import Persona
from personas.services import create_persona
from projects.models import Project, ProjectFile
from projects.planner.models.task import CodeSeries, Task
from projects.saved_prompts.models import SavedPrompt

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
Upload = Callable[[bytes], Import]


@pytest.fixture
def olga(settings: Any, tmp_path: Path) -> User:
    settings.MEDIA_ROOT = tmp_path
    return User.objects.create_user(
        "olga", language="vi", timezone="Asia/Ho_Chi_Minh", timezone_source="chosen", theme="dark",
        asks_before_search=True, tasks_in_prompts=False,
    )  # fmt: skip


@pytest.fixture
def ivan(olga: User) -> User:
    return User.objects.create_user("ivan")


@pytest.fixture
def upload(ivan: User) -> Upload:
    """Import an export as Ivan."""

    def through(content: bytes) -> Import:
        blob = default_storage.save("imports/round-trip", ContentFile(content))
        job = Import.objects.create(owner=ivan, name="export.zip", blob=blob)
        jobs.run(job.pk)
        job.refresh_from_db()
        return job

    return through


@pytest.fixture
def model() -> Model:
    provider = Provider.objects.create(name="Local", kind=Provider.Kind.OPENAI, base_url="http://127.0.0.1:9")
    return Model.objects.create(provider=provider, name="small-model", context_window=8_000)


def furnish(user: User, model: Model) -> Conversation:
    """Give a person one row of each kind, with every link between them, and return the conversation."""
    file = store(user=user, name="fees.txt", content=ContentFile(b"The fee is 42.", name="fees.txt"))
    other = store(user=user, name="Größe.bin", content=ContentFile(bytes(range(256)) * 5_000, name="x"))
    persona = create_persona(
        user=user,
        fields={
            "name": "Pirate", "description": "Of the sea", "instructions": "Say arr on {{date}}.", "effort": "low",
            "starter_messages": ["Ahoy?"], "tools": ["web_search", "tasks"], "model": model, "date_awareness": "off",
            "replaces_system_prompt": True, "icon": "flag", "colour": "red",
        },
        reminder="Stay a pirate.",
    )  # fmt: skip
    project = Project.objects.create(
        owner=user, name="Ship", instructions="In knots.", persona=persona, web=False, icon="star", findable=False
    )
    ProjectFile.objects.create(project=project, file=file, pinned=True, ordinal=0)
    ProjectFile.objects.create(project=project, file=other, ordinal=1)
    SavedPrompt.objects.create(owner=user, name="greet", text="Greet {{name}}.")
    SavedPrompt.objects.create(project=project, name="sail", text="Sail on.")
    _tasks(user, project)
    _memory(user, project, persona)
    FavouriteModel.objects.create(user=user, model=model)
    user.icon, user.colour = "star", "green"
    user.save(update_fields=["icon", "colour"])
    recording = store(user=user, name="memo.mp3", content=ContentFile(b"ID3 memo", name="memo.mp3"))
    File.objects.filter(pk=recording.pk).update(media_type="audio/mpeg")
    FileText.objects.create(file=recording, text="[0:00] The fee is 42.")
    conversation = Conversation.objects.create(
        owner=user, title="The fee", persona=persona, project=project, effort="high", archived=True, pinned=NOON,
        documents={str(file.pk): 1, "https://example.org/": 2}, tasks_in_prompts=False,
        findable=False, memory_in_prompts=False,
    )  # fmt: skip
    conversation.tags.add(Tag.objects.create(owner=user, name="money"), Tag.objects.create(owner=user, name="Sea"))
    _messages(conversation, model, file)
    return conversation


def _memory(user: User, project: Project, persona: Persona) -> None:
    add_fact(user=user, text="Lives in Hanoi.", pinned=True)
    add_fact(user=user, text="The mast is new.", scope=FactScope(project=project))
    add_fact(user=user, text="The mast is new.", scope=FactScope(persona=persona))
    fields: ProfileFields = {"about": "A sailor.", "answering": "Briefly.", "search_conversations": True}
    save_profile(user=user, fields=fields)


def _tasks(user: User, project: Project) -> None:
    def make(code: str, level: str, horizon: str, **fields: Any) -> Task:
        day = date(2026, 3, 1) if horizon != "year" else date(2026, 1, 1)
        row = Task.objects.create(owner=user, code=code, level=level, horizon=horizon, date=day, **fields)
        return row

    year = make("Y2026-O01", "objective", "year", title="Sail", notes="Far.")
    later = make("D2026-03-01-T02", "task", "day", title="Pay", archetype="hybrid", project=project, parent=year)
    first = {"archetype": "hybrid", "status": "moved", "finished": NOON, "moved_to": later, "position": 3}
    make("D2026-03-01-T01", "task", "day", title="Pay", **first)
    item = {"breakpoint": True, "needs": "The bill", "cleared": NOON, "status": "done", "finished": NOON}
    make("D2026-03-01-T02.C01", "item", "day", title="Ask", parent=later, **item)
    proposed = {"archetype": "model", "model": "small-model", "proposed": True}
    make("M2026-03-T07", "task", "month", title="Look", **proposed)
    for series, last in (("D2026-03-01-T", 2), ("D2026-03-01-T02.C", 1), ("M2026-03-T", 7), ("Y2026-O", 1)):
        CodeSeries.objects.create(owner=user, series=series, last=last)


def _messages(conversation: Conversation, model: Model, file: File) -> None:
    rows: list[Message] = []

    def say(role: str, parent: Message | None, *parts: dict[str, Any], **fields: Any) -> Message:
        depth = parent.depth + 1 if parent else 0
        row = Message.objects.create(
            conversation=conversation, owner=conversation.owner, role=role, parent=parent, depth=depth,
            parts=list(parts), **fields,
        )  # fmt: skip
        rows.append(row)
        return row

    question = say("user", None, {"type": "text", "text": "  What is the fee?\n"})
    Attachment.objects.create(message=question, file=file, name="fees.txt", ordinal=0)
    Attachment.objects.create(message=question, file=None, name="gone.txt", ordinal=1)
    passage = {
        "number": 1, "title": "fees.txt", "file": str(file.pk), "page": 0, "start": 0, "end": 14,
        "passages": [{"start": 0, "end": 14, "heading": "Fees"}],
    }  # fmt: skip
    outgoing = [{"host": "search.example", "what": "fee"}]
    answer = say(
        "assistant", question,
        {"type": "reasoning", "text": "I search."},
        {"type": "tool_call", "id": "a", "name": "search_files", "arguments": '{"query": "fee"}'},
        {"type": "tool_result", "id": "a", "text": "{}", "error": False, "documents": [passage],
         "outgoing": outgoing},
        {"type": "text", "text": "It is 42 [1]."},
        model=model, feedback="good", feedback_reasons=["correct"], feedback_comment="Just what I need.",
        feedback_at=NOON + timedelta(days=1),
    )  # fmt: skip
    failed = say("assistant", question, status="failed", error_code="model_failed", error_detail=Sentence("No answer."))
    again = say("user", answer, {"type": "text", "text": "And later?"})
    last = say("assistant", again, {"type": "text", "text": "Still 42."}, status="stopped", model=model)
    say("user", answer, {"type": "text", "text": "Another branch"})
    for number, row in enumerate(rows):
        Message.objects.filter(pk=row.pk).update(created=NOON + timedelta(hours=number))
    summary = Summary.objects.create(
        conversation=conversation, leaf=last, first=question, last=answer, messages=2, span_start=NOON,
        span_end=NOON + timedelta(hours=1), sections=[{"name": "Today", "text": "The fee is 42."}], tokens_in=90,
        tokens_out=9, as_of=NOON, timezone="UTC", model_name="small-model", prompt_version=3, left_aside=[],
        shortened=[str(answer.pk)],
    )  # fmt: skip
    call = {"cycle": 1, "limit": 6_000, "used": 700, "left": 5_300, "exact": True, "sections": {}, "without_room": 2}
    numbers_only = {"calls": [{**call, "notes": [], "versions": {}}]}
    for row, parent, status, report in (
        (answer, question, "done", {"calls": [first_call(model, question, answer, file)]}),
        (failed, question, "failed", numbers_only),
        (last, again, "stopped", {"calls": [later_call(model, again, summary)]}),
    ):
        Turn.objects.create(
            conversation=conversation, owner=conversation.owner, user_message=parent, answer=row, status=status,
            usage={"input": 700, "output": 5, "calls": 1}, cost=Decimal("0.125"), finish_reason="stop",
            report=report,
            context_limit=6_000, context_used=700, context_left_out=2, model=model,
        )  # fmt: skip
    Summary.objects.create(
        conversation=conversation, leaf=last, first=question, last=answer, messages=2, span_start=NOON,
        span_end=NOON, sections=[{"name": "Today", "text": "42."}], tokens_in=90, tokens_out=3, as_of=NOON,
        timezone="UTC", prompt_version=3, supersedes=summary, withdrawn=NOON, left_aside=[str(question.pk)],
    )  # fmt: skip
    Mark.objects.create(conversation=conversation, message=question, since=last, mark="pinned")
    Mark.objects.create(conversation=conversation, message=question, file=file, since=answer, mark="excluded")
    Conversation.objects.filter(pk=conversation.pk).update(leaf=last, created=NOON, updated=NOON + timedelta(days=2))


def _call(model: Model, **members: Any) -> dict[str, Any]:
    """Return the report of a call, as a turn stores it."""
    room = {"window": 8_000, "reserved_output": 1_024, "reserved_reasoning": 0, "buffer": 40, "margin": 0.05}
    numbers = {"limit": 6_000, "used": 700, "left": 5_300, "unloaded": 1, "without_room": 2, "unread": 0}
    settings = {"policy": "priority", "layout": "all_first", "profile": "Standard", "effort": "low"}
    return {
        **room, **numbers, **settings, "cycle": 1, "model": model.name, "model_id": str(model.pk), "tools_tokens": 30,
        "tools": ["search_files"], "exact": False, "dropped": [], "versions": {}, "summary": None, "numbers": {},
        "refused": "", "notice": "", "notes": ["One file is missing."], "usage": {"input": 700}, "provider_count": None,
        **members,
    }  # fmt: skip


def _source(kind: str, pk: str | None, state: str = "full", **members: Any) -> dict[str, Any]:
    return {"kind": kind, "state": state, "id": pk, "tokens": 7, "reason": None, "exact": False, **members}


def _sent(section: str, role: str, source: str | None, **members: Any) -> dict[str, Any]:
    return {"section": section, "source": source, "role": role, "tokens": 7, "state": "full", **members}


def first_call(model: Model, question: Message, answer: Message, file: File) -> dict[str, Any]:
    """Return a report with a file, a step of an answer, and what was left out of both kinds."""
    left_out = _source("message", f"{answer.pk}#1", "left_out", reason="no_room")
    return _call(
        model,
        sections={"system": 7, "file": 7, "current": 7},
        sources=[
            _source("system", None),
            left_out,
            _source("task", "D2026-03-01-T02", title="D2026-03-01-T02 Pay"),
            _source("file", str(file.pk), "shortened", cut_from=900),
            _source("message", str(question.pk)),
        ],
        dropped=[left_out["id"]],
        numbers={str(file.pk): 1},
        messages=[
            _sent("system", "system", None, text="Be kind."),
            _sent("file", "user", str(file.pk)),
            _sent("current", "user", str(question.pk)),
        ],
    )


def later_call(model: Model, question: Message, summary: Summary) -> dict[str, Any]:
    covered = {
        "id": str(summary.pk), "messages": 2, "first": str(summary.first_id), "last": str(summary.last_id),
        "span_start": summary.span_start.isoformat(), "span_end": summary.span_end.isoformat(), "tokens_before": 90,
    }  # fmt: skip
    return _call(
        model,
        sections={"summary": 7, "current": 7},
        sources=[_source("summary", str(summary.pk)), _source("message", str(question.pk))],
        summary=covered,
        messages=[
            _sent("summary", "system", None, text="The fee is 42."),
            _sent("current", "user", str(question.pk)),
        ],
    )


def rounded(moment: datetime | None) -> datetime | None:
    """Return the time to the millisecond, as lists of an export have it."""
    return moment.replace(microsecond=moment.microsecond // 1_000 * 1_000) if moment else None


def content(file: File) -> bytes:
    with open_blob(file=file) as stream:
        return stream.read()


def snapshot(user: User) -> dict[str, Any]:
    """Return all rows of a person in words: no ids, so that two people's rows can be compared."""
    names = {str(row.pk): row.name for row in File.objects.filter(owner=user)}
    rows: dict[str, Any] = {
        "files": sorted((row.name, content(row), rounded(row.created)) for row in File.objects.filter(owner=user)),
        "personas": [
            (
                *(row.name, row.description, row.instructions, row.replaces_system_prompt, row.effort, row.tools),
                *(row.starter_messages, row.model and row.model.name, row.own_reminder, row.date_awareness),
                *(row.icon, row.colour, row.memory),
                *(row.visibility, rounded(row.created)),
            )
            for row in Persona.objects.filter(owner=user)
        ],
        "projects": [
            (
                *(
                    row.name,
                    row.instructions,
                    row.web,
                    row.persona and row.persona.name,
                    rounded(row.created),
                    row.icon,
                    row.findable,
                ),
                [(each.file.name, each.pinned) for each in row.entries.all()],
                [(each.name, each.text) for each in row.saved_prompts.all()],
            )
            for row in Project.objects.filter(owner=user)
        ],
        "prompts": list(SavedPrompt.objects.filter(owner=user).values_list("name", "text")),
        "tasks": sorted(
            (
                *(row.code, row.level, row.horizon, row.date, row.title, row.notes, row.archetype, row.status),
                *(row.breakpoint, row.needs, rounded(row.cleared), row.position, row.model, row.proposed),
                *(rounded(row.created), rounded(row.finished), row.project and row.project.name),
                *(row.parent and row.parent.code, row.moved_to and row.moved_to.code),
            )
            for row in Task.objects.filter(owner=user)
        ),
        "facts": sorted(
            (row.text, row.scope, row.pinned, str(row.project or row.persona or ""))
            for row in Fact.objects.filter(owner=user)
        ),
        "profile": list(Profile.objects.filter(person=user).values_list("about", "answering", "search_conversations")),
        "face": User.objects.values_list("icon", "colour").get(pk=user.pk),
        "favourites": list(FavouriteModel.objects.filter(user=user).values_list("model__name", flat=True)),
        "series": sorted(CodeSeries.objects.filter(owner=user).values_list("series", "last")),
        "conversations": [_conversation(row, names) for row in Conversation.objects.filter(owner=user).order_by("pk")],
    }
    return rows


def _conversation(row: Conversation, names: dict[str, str]) -> dict[str, Any]:
    messages = list(Message.objects.filter(conversation=row).order_by("depth", "pk"))
    # A message is named by its place: those above it, and its number among its siblings.
    places: dict[Any, tuple[int, ...]] = {None: ()}
    children: dict[Any, int] = {}
    for message in messages:
        number = children[message.parent_id] = children.get(message.parent_id, 0) + 1
        places[message.pk] = (*places[message.parent_id], number)
    by_text = {str(pk): place for pk, place in places.items()}
    rows = Summary.objects.filter(conversation=row).order_by("pk")
    summaries = {str(pk): f"summary {number}" for number, pk in enumerate(rows.values_list("pk", flat=True))}
    return {
        "row": (
            *(row.title, row.archived, row.pinned, row.effort, row.tasks_in_prompts, row.automatic_summaries),
            *(row.findable, row.memory_in_prompts),
            *(row.created, row.updated, places[row.leaf_id]),
            *(row.persona and row.persona.name, row.project and row.project.name),
            *(sorted(row.tags.values_list("name", flat=True)), {names.get(k, k): n for k, n in row.documents.items()}),
        ),
        "messages": [
            (
                *(places[each.pk], each.role, each.created, each.status, each.error_code, each.error_detail.english),
                *(each.feedback, each.feedback_reasons, each.feedback_comment, each.feedback_at),
                *(each.model and each.model.name, json.loads(_named(json.dumps(each.parts), names))),
                [(file.name, file.file and file.file.name) for file in each.attachments.all()],
                _turn(each, {**by_text, **names, **summaries}),
            )
            for each in messages
        ],
        "marks": sorted(
            (places[each.message_id], places[each.since_id], names.get(str(each.file_id), ""), each.mark)
            for each in Mark.objects.filter(conversation=row)
        ),
        "summaries": [
            (
                *(places[each.leaf_id], places[each.first_id], places[each.last_id], each.messages, each.span_start),
                *(each.span_end, each.sections, each.tokens_in, each.tokens_out, each.as_of, each.timezone),
                *(each.model_name, each.prompt_version, each.withdrawn, each.created),
                *([by_text[pk] for pk in each.shortened], [by_text[pk] for pk in each.left_aside]),
                each.supersedes and each.supersedes.sections,
            )
            for each in Summary.objects.filter(conversation=row).order_by("pk")
        ],
    }


def _named(text: str, names: dict[str, str]) -> str:
    for pk, name in names.items():
        text = text.replace(pk, name)
    return text


def _report(turn: Turn, names: dict[str, Any]) -> Any:
    """Return the reports that have lists, by names in place of ids, with the texts of their notes."""
    calls = [call for call in turn.report.get("calls", ()) if "sources" in call]
    notes = [[Sentence.load(note).english for note in call.pop("notes")] for call in calls]
    text = json.dumps(calls)
    for pk, name in names.items():
        text = text.replace(pk, str(name))
    return json.loads(text), notes


def _turn(message: Message, names: dict[str, Any]) -> Any:
    turn = Turn.objects.filter(answer=message).first()
    if turn is None:
        return None
    return (
        _report(turn, names),
        *(turn.status, turn.usage, turn.cost, turn.finish_reason, turn.context_limit, turn.context_used),
        *(turn.context_left_out, turn.user_message_id == message.parent_id),
    )


def test_the_panel_of_an_imported_answer_shows_what_its_model_saw(
    olga: User, ivan: User, model: Model, upload: Upload
) -> None:
    furnish(olga, model)
    upload(b"".join(_zip(olga)))
    question = Message.objects.get(conversation__owner=ivan, depth=0)
    panel = inspector.of_turn(Turn.objects.get(owner=ivan, answer__depth=1, status="done"))
    assert panel is not None
    texts = [each["text"] for each in panel.messages]
    assert texts[0] == "Be kind." and '"title": "fees.txt"' in str(texts[1]) and texts[2] == question.text
    titles = [source["title"] for source in panel.report["sources"]]
    assert titles[2:] == ["D2026-03-01-T02 Pay", "fees.txt", "What is the fee?"]
    assert [card.group for card in panel.cards] == ["instructions", "files", "tasks", "conversation", "current"]
    later = inspector.of_turn(Turn.objects.get(owner=ivan, answer__depth=3))
    assert later is not None and later.sight is not None and "2 messages above as a summary" in later.sight.words


def test_older_reports_come_as_numbers(
    olga: User, ivan: User, model: Model, upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(olga, model)
    newest = Turn.objects.filter(owner=olga).latest("pk")
    monkeypatch.setattr("chat.conversations.export.MAX_WHOLE", len(json.dumps(newest.report)) + 100)
    job = upload(b"".join(_zip(olga)))
    assert why(job, "The fee") == "Older context reports imported as numbers only: 2."
    assert [bool(turn.report) for turn in Turn.objects.filter(owner=ivan).order_by("pk")] == [False, False, True]
    assert Turn.objects.filter(owner=ivan, context_used=700, context_limit=6_000).count() == 3


def test_a_report_of_an_export_leads_to_no_row_of_others(olga: User, ivan: User, model: Model, upload: Upload) -> None:
    """Titles and texts are read by ids, so an id in the file could name any row of the workspace."""
    conversation = furnish(olga, model)
    file = File.objects.get(owner=olga, name="fees.txt")
    secret = Message.objects.get(conversation=conversation, depth=0)
    summary = conversation.summaries.earliest("pk")
    stolen = {
        "sources": [
            _source("file", str(file.pk)), _source("message", str(secret.pk)), _source("summary", str(summary.pk)),
            _source("odd", None), _source("message", "a", "odd"), _source("message", "a#1", reason="odd"), 7,
        ],
        "messages": [
            _sent("file", "user", str(file.pk)), _sent("current", "user", str(secret.pk)),
            _sent("odd", "user", "q"), _sent("current", "odd", "q"), _sent("current", "user", "q", state="odd"),
        ],
        "summary": {"id": str(summary.pk), "first": str(secret.pk), "last": str(secret.pk), "messages": 1},
        "sections": {"odd": 3, "current": "x"}, "layout": "odd", "policy": 7, "effort": "odd", "margin": 1e300,
        "numbers": {str(file.pk): 1}, "notes": ["A note.", 7], "versions": {"system_prompt": 1}, "cycle": -1,
    }  # fmt: skip
    answer = {
        "id": "a", "parent": "q", "role": "assistant", "usage": {}, "report": [stolen],
        "parts": [{"type": "text", "text": "Yes"}],
    }  # fmt: skip
    job = upload(conversation_json(messages=[QUESTION, answer]))
    assert job.imported == 1, job.results
    turn = Turn.objects.get(owner=ivan)
    stored = json.dumps(turn.report)
    assert not any(str(pk) in stored for pk in (file.pk, secret.pk, summary.pk))
    panel = inspector.of_turn(turn)
    assert panel is not None
    assert [source["state"] for source in panel.report["sources"]] == ["full"] * 4
    assert [each["section"] for each in panel.messages] == ["file", "current", "current"]
    shown = repr((panel.messages, panel.cards, panel.facts, panel.window, panel.notices, panel.status, panel.sight))
    assert not any(words in shown for words in ("The fee", "fees.txt", "What is the fee"))


def why(job: Import, title: str) -> str:
    [result] = [each for each in job.results if each["title"] == title]
    return Sentence.load(result["why"]).english


def test_everything_of_a_person_comes_back_as_another_persons(
    olga: User, ivan: User, model: Model, upload: Upload
) -> None:
    furnish(olga, model)
    before = snapshot(olga)
    export_of_all = b"".join(_zip(olga))
    job = upload(export_of_all)
    assert (job.status, job.imported, job.skipped, job.error_code) == ("done", 1, 0, "")
    after = snapshot(ivan)
    assert {name: after[name] for name in before} == before
    ivan.refresh_from_db()
    own = (ivan.language, ivan.timezone, ivan.theme, ivan.asks_before_search, ivan.tasks_in_prompts)
    assert own == ("vi", "Asia/Ho_Chi_Minh", "dark", True, False)
    assert why(job, "The fee") == "Older context reports imported as numbers only: 1."
    assert why(job, "tasks.json") == "5 imported, 0 here already, 0 skipped."
    assert snapshot(olga) == before


def test_the_text_of_a_recording_is_in_the_export(olga: User, model: Model) -> None:
    furnish(olga, model)
    with zipfile.ZipFile(io.BytesIO(b"".join(_zip(olga)))) as archive:
        [name] = [name for name in archive.namelist() if name.startswith("transcripts/memo ")]
        assert name.endswith(".mp3.txt") and archive.read(name) == b"[0:00] The fee is 42."
        assert "transcripts/" in archive.read("README.txt").decode()


def test_the_same_export_again_makes_nothing_twice_neither_here_nor_there(
    olga: User, ivan: User, model: Model, upload: Upload
) -> None:
    furnish(olga, model)
    content_of_zip = b"".join(_zip(olga))
    upload(content_of_zip)
    once = snapshot(ivan)
    job = upload(content_of_zip)
    assert (job.imported, job.known) == (0, 1)
    assert snapshot(ivan) == once
    lists = {each["title"]: each["outcome"] for each in job.results if each["conversation"] is None}
    assert lists.pop("settings.json") == "imported" and [*lists.values()] == ["known"] * 7
    before = snapshot(olga)
    blob = default_storage.save("imports/own", ContentFile(content_of_zip))
    own = Import.objects.create(owner=olga, name="own.zip", blob=blob)
    jobs.run(own.pk)
    assert snapshot(olga) == before


def test_the_json_of_one_conversation_comes_with_what_its_reader_has(
    olga: User, ivan: User, model: Model, upload: Upload
) -> None:
    conversation = furnish(olga, model)
    Model.objects.filter(pk=model.pk).update(name="another-model")
    store(user=ivan, name="fees.txt", content=ContentFile(b"The fee is 42.", name="fees.txt"))
    text = export(Conversation.objects.get(pk=conversation.pk), "json").replace("another-model", "small-model")
    job = upload(text.encode())
    assert (job.status, job.imported) == ("done", 1)
    imported = Conversation.objects.get(owner=ivan)
    question = Message.objects.get(conversation=imported, depth=0)
    assert question.text == "  What is the fee?\n"
    assert [each.file and each.file.owner for each in question.attachments.all()] == [ivan, None]
    words_of_losses = why(job, "The fee")
    for words in ("“small-model”, a model that you do not have", "no persona “Pirate”", "no project “Ship”"):
        assert words in words_of_losses


def test_what_an_own_export_lacks_is_named(olga: User, ivan: User, model: Model, upload: Upload) -> None:
    furnish(olga, model)
    changed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(b"".join(_zip(olga)))) as original,
        zipfile.ZipFile(changed, "w") as copy,
    ):
        for name in original.namelist():
            if name.startswith("files/fees"):
                continue
            body = original.read(name)
            copy.writestr(name, body.replace(b"D2026-03-01-T01", b"D2026-02-31-T01") if name == "tasks.json" else body)
    job = upload(changed.getvalue())
    assert why(job, "files.json").startswith("2 imported, 0 here already, 1 skipped.")
    assert "Missing files of “Ship”: 1." in why(job, "projects.json")
    assert "D2026-02-31-T01" in why(job, "tasks.json")
    assert "imported by name only: 1." in why(job, "The fee")
    assert Conversation.objects.filter(owner=ivan).count() == 1


def test_a_damaged_conversation_costs_itself_and_not_the_others(
    olga: User, ivan: User, model: Model, upload: Upload
) -> None:
    furnish(olga, model)
    target = io.BytesIO(b"".join(_zip(olga)))
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr("json/broken.json", "[")
        archive.writestr("json/strange.json", "{}")
    job = upload(target.getvalue())
    assert (job.status, job.imported, job.skipped) == ("done", 1, 2)
    assert "damaged" in why(job, "broken") and "format" in why(job, "strange")


def conversation_json(**members: Any) -> bytes:
    body = {"format": "glasshouse.conversation/1", "id": "c", "title": "T", "messages": [], **members}
    return json.dumps(body).encode()


QUESTION = {"id": "q", "parent": None, "role": "user", "parts": [{"type": "text", "text": "Hi"}]}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, "It has no message."),
        ({"messages": [{**QUESTION, "parent": "x"}]}, "do not form a tree"),
        ({"messages": [QUESTION, QUESTION]}, "do not form a tree"),
        ({"messages": [{**QUESTION, "role": "system"}]}, "do not form a tree"),
        ({"messages": ["x", 7, None]}, "It has no message."),
        ({"id": None, "messages": [QUESTION]}, "It has no id"),
        ({"messages": [{**QUESTION, "parts": [{"type": "text", "text": "x" * 1_000_001}]}]}, "more than 1,000,000"),
    ],
)
def test_a_wrong_conversation_is_skipped_with_its_reason(
    ivan: User, upload: Upload, members: dict[str, Any], reason: str
) -> None:
    job = upload(conversation_json(**members))
    assert (job.status, job.imported, job.skipped) == ("done", 0, 1)
    assert reason in Sentence.load(job.results[0]["why"]).english
    assert not Conversation.objects.filter(owner=ivan).exists()


def test_strange_values_of_an_own_export_become_usual_ones(ivan: User, upload: Upload) -> None:
    odd: dict[str, Any] = {
        "title": ["x"], "created": "never", "pinned": "yes", "effort": 7, "tags": {"a": 1}, "documents": ["x"],
        "persona": {"a": 1}, "leaf": "nowhere", "marks": [{"message": "q", "since": "q", "mark": "odd"}, 7],
        "summaries": [{"first": "q", "last": "q"}], "archived": 1,
    }  # fmt: skip
    answer = {
        "id": "a", "parent": "q", "role": "assistant", "status": "pending", "usage": {"input": "many", "x": -1},
        "cost": "NaN", "finish_reason": "odd", "report": [{"limit": "x", "used": 10**30}], "created": "2999-01-01",
        "parts": [{"type": "odd"}, {"type": "text", "text": "a\0b"}, {"type": "tool_result", "documents": [
            {}, 7, {"number": 1, "url": "javascript:alert(1)"}, {"number": 2, "url": "https://example.org/"},
        ]}],
        "attachments": [{"id": "not an id", "name": "n", "sha256": "x"}],
    }  # fmt: skip
    job = upload(conversation_json(messages=[QUESTION, answer], **odd))
    assert (job.status, job.imported) == ("done", 1), job.results
    conversation = Conversation.objects.get(owner=ivan)
    row = Message.objects.get(conversation=conversation, depth=1)
    assert (row.text, row.status) == ("ab", "interrupted") and row.turn.cost is None
    assert [each.get("url") for each in row.parts[-1]["documents"]] == [None, None, "https://example.org/"]
    assert conversation.leaf == row and conversation.documents == {} and not conversation.archived


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"manifest.json": "{}", "personas.json": "["}, "damaged_export"),
        ({"manifest.json": "{}", "personas.json": "[" * 200_000}, "damaged_export"),
        ({"other.json": "{}"}, "not_an_export"),
    ],
)
def test_damaged_own_exports_are_refused(upload: Upload, members: dict[str, str], code: str) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    job = upload(target.getvalue())
    assert (job.status, job.error_code) == ("failed", code)
