"""The context panel agrees with the report, over random conversations, and its figures add up."""

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.base import ContentFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from lxml import html

from accounts.models import User
from chat.models import Attachment, Conversation, Mark, Message, Summary, Turn
from chat.models.conversation_state import ChatScope
from chat.models.summary import marks_on
from chat.prompts import inspector, wording
from chat.prompts.cards import SourceRow
from chat.prompts.inspector import Panel
from chat.prompts.preview import TurnDraft, plan_ahead
from chat.prompts.turn_context import base_context
from core.i18n import percent
from files.models import File, FileText
from llm.models import Model, Provider
from personas.models import BudgetProfile, Persona
from projects.models import Project
from projects.models.project import ProjectFile
from tests.chat.documents import picture

pytestmark = pytest.mark.django_db

CONVERSATIONS = 50
WORDS = ("clause", "fee", "boat", "điều khoản", "سفينة", "of")


class Maker:
    """One person's conversations, of rows, from one stream of random numbers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.user = User.objects.create_user(f"panels-{uuid4().hex[:8]}")
        provider = Provider.objects.create(
            name=f"panels-{uuid4().hex[:8]}", kind="openai", base_url="http://localhost:9"
        )
        kinds: list[dict[str, Any]] = [
            {"context_window": 4_000, "vision": False},
            {"context_window": 8_000, "vision": True},
            {"context_window": 32_000, "vision": True},
        ]
        self.models = [
            Model.objects.create(provider=provider, name=f"panels-{number}", tools=True, **kind)
            for number, kind in enumerate(kinds)
        ]
        profiles = [{"policy": policy, "layout": layout} for policy in ("recent", "priority") for layout in LAYOUTS]
        self.personas = [
            Persona.objects.create(
                owner=self.user,
                name=f"Persona {number}",
                instructions=self.text(20),
                budget_profile=BudgetProfile.objects.create(name=f"panels-{number}-{uuid4().hex[:8]}", **fields),
            )
            for number, fields in enumerate(profiles)
        ]

    def text(self, words: int) -> str:
        return " ".join(self.random.choice(WORDS) for _ in range(words))

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def file(self, *, image: bool = False) -> File:
        status = self.random.choices(("ready", "failed", "processing"), (8, 1, 1))[0]
        kind = "image/png" if image else "text/plain"
        name = f"{uuid4().hex[:6]}.{'png' if image else 'txt'}"
        size = {"width": 400, "height": 300} if image else {}
        row = File.objects.create(
            owner=self.user, name=name, size=1, sha256="0" * 64, status=status, media_type=kind, **size
        )
        if image:
            row.blob.save(name, ContentFile(picture()))
        if not image:
            FileText.objects.create(file=row, text=self.text(self.random.randint(1, 600)))
        return row

    def conversation(self) -> Conversation:
        project = None
        if self.maybe(0.4):
            project = Project.objects.create(owner=self.user, name="Project", instructions=self.text(10))
            for _ in range(self.random.randint(0, 9)):
                ProjectFile.objects.create(project=project, file=self.file(), pinned=self.maybe(0.2))
        persona = self.random.choice([None, *self.personas])
        place = Conversation.objects.create(owner=self.user, persona=persona, project=project)
        rows: list[Message] = []
        for _ in range(self.random.randint(0, 24)):
            rows.append(self.question(place, rows))
            rows.append(self.answer(place, rows))
        if rows and self.maybe(0.2):
            rows.append(self.question(place, rows))
            rows.append(self.message(place, rows, "assistant", [self.call("search_files")], status="pending"))
        if rows:
            Conversation.objects.filter(pk=place.pk).update(leaf=rows[-1])
            place.refresh_from_db()
            self.mark(place, [row for row in rows if row.role == "user"], rows)
            if len(rows) > 8 and self.maybe(0.4):
                self.summarise(place, rows[: 2 * self.random.randint(1, 3)], rows[-1])
        return place

    def message(self, place: Conversation, rows: list[Message], role: str, parts: list[Any], **more: Any) -> Message:
        parent = rows[-1] if rows else None
        return Message.objects.create(
            conversation=place, parent=parent, depth=len(rows), role=role, parts=parts, **more
        )

    def question(self, place: Conversation, rows: list[Message]) -> Message:
        words = self.random.choice((3, 30, 300))
        row = self.message(place, rows, "user", [{"type": "text", "text": self.text(words)}])
        for ordinal in range(self.random.choices((0, 1, 3), (7, 2, 1))[0]):
            file = self.file(image=self.maybe(0.4))
            Attachment.objects.create(message=row, file=file, name=file.name, ordinal=ordinal)
        return row

    def call(self, name: str) -> dict[str, Any]:
        arguments = f'{{"query": "{self.text(3)}"}}'
        return {"type": "tool_call", "id": uuid4().hex, "name": name, "arguments": arguments, "label": "Searching"}

    def answer(self, place: Conversation, rows: list[Message]) -> Message:
        parts: list[Any] = []
        for _ in range(self.random.choices((0, 1, 3), (6, 3, 1))[0]):
            call = self.call(self.random.choice(("search_files", "list_tasks")))
            parts += [call, {"type": "tool_result", "id": call["id"], "text": self.text(80), "documents": []}]
        parts.append({"type": "text", "text": self.text(self.random.choice((5, 60, 400)))})
        return self.message(place, rows, "assistant", parts)

    def mark(self, place: Conversation, questions: list[Message], rows: list[Message]) -> None:
        for question in questions:
            if self.maybe(0.15):
                kind = self.random.choice((Mark.Kind.PINNED, Mark.Kind.EXCLUDED))
                Mark.objects.create(conversation=place, message=question, since=rows[-1], mark=kind)

    def summarise(self, place: Conversation, messages: list[Message], leaf: Message) -> None:
        Summary.objects.create(
            conversation=place,
            leaf=leaf,
            first=messages[0],
            last=messages[-1],
            messages=len(messages),
            span_start=timezone.now(),
            span_end=timezone.now(),
            sections=[{"name": "Earlier", "text": self.text(40)}],
            tokens_in=900,
            tokens_out=90,
            as_of=timezone.now(),
            prompt_version=1,
            timezone="UTC",
        )


LAYOUTS = ("near_end", "files_first", "all_first")


def leaves(rows: Any) -> Iterator[SourceRow]:
    for row in rows:
        yield from leaves(row.rows) if row.rows and row.tokens == total(row.rows) else [row]


def total(rows: Any) -> int:
    return sum(row.tokens or 0 for row in rows)


def added_up(panel: Panel) -> None:
    """Every number of the panel against its report's."""
    report = panel.report
    assert sum(card.tokens for card in panel.cards) == sum(report["sections"].values()) == report["used"]
    assert report["used"] + report["left"] == report["limit"]
    assert report["limit"] + report["reserved_output"] + panel.set_aside == report["window"]
    for card in panel.cards:
        sections = [section for section in report["sections"] if wording.GROUP_OF[section] == card.group]
        assert card.tokens == sum(report["sections"][section] for section in sections)
        assert total(card.rows) == card.tokens, card
        assert all((row.tokens or 0) >= 0 for row in leaves(card.rows)), card
    assert [segment.group for segment in panel.segments] == [card.group for card in panel.cards if card.tokens]
    assert sum(segment.tokens for segment in panel.segments) == report["used"]
    assert all(segment.width > 0 for segment in panel.segments)
    assert sum(segment.width for segment in panel.segments) <= panel.room
    assert panel.percent == percent(report["used"], report["limit"])
    shown = [row for card in panel.cards for row in leaves(card.rows)]
    for source in report["sources"]:
        if source["state"] == "left_out" and source["kind"] == "message":
            assert any(row.state == "left_out" and row.words for row in shown), source
    window = {fact.name: fact.value for fact in panel.window}
    assert len(window) >= 4


@pytest.mark.parametrize("seed", range(5))
def test_every_panel_adds_up_to_its_report_and_its_page_says_the_same(seed: int, client: Client) -> None:
    maker = Maker(seed)
    client.force_login(maker.user)
    planned = 0
    for _ in range(CONVERSATIONS // 5):
        place = maker.conversation()
        draft = TurnDraft(maker.text(maker.random.choice((0, 5, 200))))
        scope = ChatScope(place, place.project, place.persona)
        plan = plan_ahead(user=maker.user, scope=scope, draft=draft, model=maker.random.choice(maker.models))
        line = wording.plan_line(plan)
        assert line.words
        panel = inspector.of_plan(plan, marks_on(place.pk, place.leaf_id))
        if panel is None:
            assert not plan["fits"]
            continue
        planned += 1
        added_up(panel)
        assert line.words.endswith(f"{panel.percent} of the room used")
        assert panel.status.words in line.words
        if place.leaf is not None:
            stored = Turn.objects.create(
                conversation=place,
                user_message=place.leaf.parent or place.leaf,
                answer=place.leaf,
                model=maker.models[0],
                status="done",
                report={"calls": [plan]},
            )
            seen = inspector.of_turn(stored)
            assert seen is not None and seen.percent == panel.percent
            added_up(seen)
            shown_as_reported(client, stored)
    assert planned >= 5


def page_of(content: bytes) -> Any:
    """Return the page's elements. The types of lxml do not tell the type of a result."""
    return html.fromstring(content)


def number(element: Any) -> int:
    return int(re.sub(r"\D", "", element.text_content()))


def shown_as_reported(client: Client, turn: Turn) -> None:
    """Check that the page shows the figures of the report that programs get."""
    report = client.get(reverse("turn-report", args=[turn.pk])).json()
    page = page_of(client.get(reverse("chat:report", args=[turn.pk]), headers={"HX-Request": "true"}).content)
    whole = {name: sum(map(number, page.find_class(f"figure-{name}"))) for name in ("used", "free", "kept")}
    assert whole == {
        "used": report["used"],
        "free": report["left"],
        "kept": report["window"] - report["limit"],
    }
    assert page.find_class("percent")[0].text_content().strip().startswith(percent(report["used"], report["limit"]))
    heads = {}
    for card in page.xpath(".//section[@data-group]"):
        heads[card.get("data-group")] = number(card.xpath("./header/*[@class='tokens']")[0])
        rows = card.xpath("./ul/li")
        written = [row.xpath("(.|./details/summary)/*[@class='tokens']") for row in rows]
        assert not rows or sum(number(each[0]) for each in written if each) == heads[card.get("data-group")]
        for fold in card.xpath("./ul/li/details"):
            inner = [number(each) for each in fold.xpath("./ul/li/*[@class='tokens']")]
            assert not inner or sum(inner) == number(fold.xpath("./summary/*[@class='tokens']")[0])
    sections: Counter[str] = Counter()
    for section, tokens in report["sections"].items():
        sections[wording.GROUP_OF[section]] += tokens
    assert {group: tokens for group, tokens in heads.items() if tokens} == {**+sections}


def a_plan(*sources: dict[str, Any], **more: Any) -> dict[str, Any]:
    room = {"used": 300, "limit": 30_000, "unloaded": 0, "near_limit": None}
    return {"fits": True, **room, "summary": None, "sources": sources, **more}


def message(reason: str, **more: Any) -> dict[str, Any]:
    return {"kind": "message", "state": "left_out", "reason": reason, **more}


@pytest.mark.parametrize(
    ("plan", "icon", "words"),
    [
        (a_plan(), "tick", "Everything you gave fits · 1 % of the room used"),
        (a_plan(message("by_user")), "tick", "Everything you gave fits · 1 % of the room used"),
        (
            a_plan(message("call_without_result")),
            "out",
            "1 step of an answer not sent: it is not finished · 1 % of the room used",
        ),
        (
            a_plan(message("no_room"), message("behind_gap"), unloaded=8_944, summary={"messages": 2}),
            "out",
            "8,946 older messages left out: no room · 2 old messages summarised · 1 % of the room used",
        ),
        (
            a_plan({"kind": "file", "state": "left_out", "reason": "failed_file", "title": "a.pdf"}),
            "out",
            "“a.pdf” is not sent: the file could not be read · 1 % of the room used",
        ),
        (
            a_plan({"kind": "project_file", "state": "by_search"}, summary={"messages": 14}),
            "lens",
            "1 file by search · 14 old messages summarised · 1 % of the room used",
        ),
        (
            {"fits": False, "error": {"code": "context_too_long", "detail": "…", "needed": 23_800, "limit": 10_000,
                                      "part": "current"}},
            "warn",
            "Too long by 138 % · shorten the message, or choose a model that can read more",
        ),
        ({"fits": False, "error": {"code": "file_failed", "detail": "It could not be read."}}, "warn",
         "It could not be read."),
    ],
)  # fmt: skip
def test_the_sentence_of_a_plan_says_what_is_left_out_for_its_own_reason(plan: Any, icon: str, words: str) -> None:
    assert wording.plan_line(plan) == (icon, words)


def test_a_tools_call_and_its_result_are_one_row_that_says_what_was_done() -> None:
    maker = Maker(99)
    place = Conversation.objects.create(owner=maker.user)
    file = maker.file()
    question = maker.message(place, [], "user", [{"type": "text", "text": "Which?"}])
    call = {**maker.call("search_files"), "arguments": '{"query": "fee limit"}'}
    documents = [{"number": 1, "title": "contract.pdf", "file": str(file.pk)}]
    result = {"type": "tool_result", "id": call["id"], "text": '{"documents": []}', "documents": documents}
    parts = [call, result, {"type": "text", "text": "Clause 7."}]
    answer = maker.message(place, [question], "assistant", parts)
    Conversation.objects.filter(pk=place.pk).update(leaf=answer)
    place.refresh_from_db()
    plan = plan_ahead(user=maker.user, scope=ChatScope(place), draft=TurnDraft("And?"), model=maker.models[2])
    panel = inspector.of_plan(plan)
    assert panel is not None
    rows = [row for card in panel.cards for row in leaves(card.rows)]
    assert [(row.title, row.state, row.kind) for row in rows if row.by == "Tool"] == [
        ("Searched the files for “fee limit” → contract.pdf", "stubbed", "call")
    ]
    assert not any("{" in row.title for row in rows)


def turn_past_window(maker: Maker, persona: Persona | None = None) -> Turn:
    """Return the newest turn of a conversation whose beginning does not fit the smallest model."""
    place = Conversation.objects.create(owner=maker.user, persona=persona)
    rows: list[Message] = []
    for _ in range(10):
        rows.append(maker.message(place, rows, "user", [{"type": "text", "text": maker.text(300)}]))
        rows.append(maker.message(place, rows, "assistant", [{"type": "text", "text": maker.text(300)}]))
    Conversation.objects.filter(pk=place.pk).update(leaf=rows[-1])
    place.refresh_from_db()
    plan = plan_ahead(
        user=maker.user, scope=ChatScope(place, None, persona), draft=TurnDraft("And?"), model=maker.models[0]
    )
    assert "left out: no room" in wording.plan_line(plan).words
    return Turn.objects.create(
        conversation=place,
        user_message=rows[-2],
        answer=rows[-1],
        model=maker.models[0],
        status="done",
        report={"calls": [plan]},
    )


def asked_again(client: Client, turn: Turn) -> list[Any]:
    """The forms of the panel that have the answer written again."""
    page = page_of(client.get(reverse("chat:report", args=[turn.pk])).content)
    return list(page.xpath(f".//form[@action='{reverse('chat:retry', args=[turn.answer_id])}']"))


def test_of_an_answer_that_did_not_see_everything_the_panel_offers_a_model_with_more_room(client: Client) -> None:
    maker = Maker(7)
    client.force_login(maker.user)
    turn = turn_past_window(maker)
    [form] = asked_again(client, turn)
    offered = Model.objects.get(pk=form.xpath(".//button/@value")[0])
    context = base_context(user=maker.user, model=offered, scope=ChatScope(turn.conversation))
    call = turn.report["calls"][0]
    more = context.room.input_limit - call["limit"] - call["tools_tokens"]
    assert more > 0 and f"{100 * more // call['limit']:,} % more room" in form.getparent().text_content()
    Turn.objects.filter(pk=turn.pk).update(status="running")
    assert asked_again(client, turn) == []


def test_no_larger_model_is_offered_where_the_profile_gives_it_no_more_room(client: Client) -> None:
    maker = Maker(8)
    client.force_login(maker.user)
    profile = BudgetProfile.objects.create(name=f"panels-{uuid4().hex[:8]}", window=4_000, summaries=False)
    assert (
        asked_again(client, turn_past_window(maker, Persona.objects.create(owner=maker.user, budget_profile=profile)))
        == []
    )


@pytest.mark.parametrize("words", [5, 500])
def test_a_file_of_a_draft_has_one_size_at_the_field_and_in_the_panel(client: Client, words: int) -> None:
    maker = Maker(9)
    client.force_login(maker.user)
    text = File.objects.create(owner=maker.user, name="contract.txt", size=1, sha256="0" * 64, status="ready")
    FileText.objects.create(file=text, text=maker.text(words))
    image = maker.file(image=True)
    File.objects.filter(pk=image.pk).update(status="ready")
    draft = {"text": "Which clause?", "files": [text.pk, image.pk], "model": maker.models[2].pk}
    line = page_of(client.post(reverse("chat:plan_new"), draft).content)
    sizes = {each.get("data-size-of"): number(each) for each in line.xpath(".//*[@data-size-of]")}
    panel = page_of(client.post(reverse("chat:plan_new") + "?panel", draft).content)
    rows = {
        row.find_class("source-title")[0].get("title"): number(row.find_class("tokens")[0])
        for row in panel.xpath(".//li[contains(@class, 'source')]")
        if row.find_class("tokens")
    }
    assert sizes == {str(text.pk): rows["contract.txt"], str(image.pk): rows[image.name]}
