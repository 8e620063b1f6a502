"""One person's rows and the workspace's, for the tests of access."""

import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from time import time
from typing import Any
from uuid import uuid4

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model as Row
from django.test import Client
from django.utils import timezone

from accounts.access.login import SIGNED_IN
from accounts.access.sessions import public_name
from accounts.models import AdminRecord, Limit, OpenIDProvider, PeopleGroup, User, Webhook, WebhookDelivery
from accounts.services import create_token
from chat.lab.models import Replay
from chat.ledger.models import ModelCall
from chat.memory.models import Fact
from chat.models import (
    Conversation,
    Import,
    JudgedAnswer,
    Message,
    Share,
    Summary,
    SummaryJob,
    TeamShare,
    ToolPermission,
    ToolResult,
    Turn,
)
from chat.readings.models import Reading, ReadingFile, ReadingPart
from core.audit.models import Entry
from files.models import Embedder, File, Reranker, SpeechServer
from llm.models import Model, Provider, ToolGrant, ToolServer, WebAccess, WebSearch
from personas.models import BudgetProfile, Persona, PersonaShare, Reminder, SummaryPrompt, SystemPrompt
from personas.services import save_prompt, save_text
from projects.models import Invitation, Membership, Project, ProjectFile
from projects.planner.models import Run, Task, TaskChange
from projects.planner.rules import Actor, NewTask
from projects.planner.services import create as create_task
from projects.saved_prompts.models import SavedPrompt
from tests.config.addresses import Address, addresses
from workspace.models import Workspace

PRIVATE = "words-that-only-their-owner-may-see"
SECRET = "sk-key-that-nobody-may-see"
# Administrators see people's own names, and run projects and personas; who opens somebody else's stands in its history.
SHOWN = ("/accounts/user/", "/projects/project/", "/personas/persona/")
INTRUSION = {"text": "intruder", "title": "intruder", "name": "intruder", "archived": True, "post": "yes"}
# The walks try passwords, too, which would be counted for those who really sign in from this machine.
ELSEWHERE = "203.0.113.5"


def content(response: Any) -> str:
    """Return the text of a response. The text of an archive is that of its members."""
    body = b"".join(response) if response.streaming else bytes(response.content)
    if body.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            body = b"\n".join(archive.read(name) for name in archive.namelist())
    return body.decode(errors="replace")


@dataclass
class Household:
    """One person's rows and the workspace's, and the values that put them into addresses.

    `everybodys`: values for the rows of the workspace, for addresses that a person's own rows have too."""

    values: dict[str, str]
    rows: list[Row]
    everybodys: dict[str, str]

    def addresses(self) -> list[Address]:
        return addresses(self.values)

    def of_everybody(self) -> list[Address]:
        """Return the addresses with a row of the workspace in place of the person's own."""
        all_addresses = addresses({**self.values, **self.everybodys})
        return [address for address in all_addresses if any(pk in address.url for pk in self.everybodys.values())]

    def state(self) -> list[dict[str, Any]]:
        return [type(row)._default_manager.values().get(pk=row.pk) for row in self.rows]


@pytest.fixture
def people(committed: None) -> Iterator[Callable[..., User]]:
    """Yield a function that makes people. They are deleted with all their rows after the test.

    These tests have no transaction around them: a view that streams gives its database connection back.
    """
    users: list[User] = []

    def make(**fields: Any) -> User:
        users.append(User.objects.create_user(f"access-{uuid4().hex}", **fields))
        return users[-1]

    yield make
    for person in users:
        person.delete()


@pytest.fixture
def household(people: Callable[..., User]) -> Iterator[Household]:
    owner = people(first_name=PRIVATE)
    unique = uuid4().hex
    provider = Provider.objects.create(name=unique, base_url="http://127.0.0.1:9/v1", api_key=SECRET)
    prompt = save_prompt(user=None, kind=SystemPrompt, text="Be kind.", activate=False)
    profile, reminder = BudgetProfile.objects.create(name=unique), Reminder.objects.create(text="Be brief.")
    group, people_group = Group.objects.create(name=unique), _people_group(unique, owner)
    model = Model.objects.create(provider=provider, name="m")
    persona = Persona.objects.create(owner=owner, name=PRIVATE, instructions=PRIVATE)
    own = Reminder.objects.create(text=PRIVATE, scope=Reminder.Scope.PERSONA)
    persona.reminders.add(own)
    token, _ = create_token(user=owner, name="notebook")
    turn = _turn(owner, model, persona)
    rows: list[Row] = [owner, provider, prompt, profile, own, reminder, group, model, persona, token, turn]
    rows += [people_group, turn.conversation, turn.user_message, turn.answer]
    search = WebSearch.objects.create(name=unique, base_url="http://127.0.0.1:9", api_key=SECRET)
    server = ToolServer.objects.create(name=unique[:24], base_url="http://127.0.0.1:9/mcp", api_key=SECRET)
    web_access = WebAccess.objects.create(denied_hosts="bad.example")
    workspace = Workspace.objects.create()
    signs_in = OpenIDProvider.objects.create(
        name=unique, issuer="http://127.0.0.1:9", client_id="here", client_secret=SECRET, enabled=False
    )
    about: dict[str, Any] = {"tool": "open_url", "host": "a.example", "allowed": True}
    permission = ToolPermission.objects.create(conversation=turn.conversation, **about)
    embedder = Embedder.objects.create(name=unique, api_key=SECRET)
    reranker = Reranker.objects.create(name=unique, base_url="http://127.0.0.1:9", api_key=SECRET)
    speech_server = SpeechServer.objects.create(name=unique, base_url="http://127.0.0.1:9", api_key=SECRET)
    project, file, member = _project(owner, people())
    invitation = Invitation.objects.create(
        project=project, person=people(), username="invited", expires=timezone.now() + timedelta(days=1)
    )
    task, change = _task(owner)
    summary_prompt = save_prompt(user=None, kind=SummaryPrompt, text="Be short.", activate=False)
    prompt_text = save_text(user=None, name="citations", text="Cite.", activate=False)
    summary, job = _summary(turn)
    spent = ModelCall.objects.create(person=owner, turn=turn, model=model, purpose="answer", input=2, output=1)
    persona_share = _shared(persona, member, people_group)
    rows += [summary_prompt, prompt_text, summary, job, spent, persona_share]
    rows += [
        permission,
        web_access,
        workspace,
        signs_in,
        embedder,
        reranker,
        speech_server,
        search,
        server,
        project,
        file,
        member,
        invitation,
        task,
        change,
        run := _run(owner, task),
    ]
    Message.objects.filter(pk=turn.answer_id).update(feedback="bad", feedback_reasons=["unseen"])
    rows.append(JudgedAnswer.objects.get(pk=turn.answer_id))
    share = Share.objects.create(conversation=turn.conversation, leaf=turn.answer, title=PRIVATE)
    brought = Import.objects.create(owner=owner, name=PRIVATE, status="done", results=[])
    saved = SavedPrompt.objects.create(owner=owner, name=PRIVATE, text=PRIVATE)
    fact = Fact.objects.create(owner=owner, text=PRIVATE, status="kept", proposed_by="person", answer=turn.answer)
    team_share = TeamShare.objects.create(
        conversation=turn.conversation,
        leaf=turn.answer,
        title=PRIVATE,
        user=member.user,
        username="shared",
        may_copy=True,
        updated=timezone.now(),
    )
    rows += [
        result := _result(turn),
        share,
        team_share,
        brought,
        fact,
        SavedPrompt.objects.create(project=project, name=PRIVATE, text=PRIVATE),
        saved,
    ]
    for_everybody = SavedPrompt.objects.create(name=unique, text="For everybody.")
    rows += [for_everybody, Replay.objects.create(author=owner, conversation=turn.conversation, status="done")]
    rows.append(_grant(owner, server))
    reading = _reading(turn, file)
    hook, delivery = _webhook(owner)
    what = {"action": 2, "what": "user", "row": "somebody"}
    rows.append(Entry.objects.filter(object_id=str(token.pk)).latest("sequence"))
    limit = Limit.objects.create(user=owner, unit="turns", per="day", amount=1_000_000)
    record = AdminRecord.objects.create(username="gone", at=timezone.now(), **what)
    rows += [reading, hook, delivery, limit, record]
    values = {
        **{f"{row._meta.model_name}/object_id": str(row.pk) for row in rows},
        "c/pk": str(turn.conversation_id),
        "conversations/pk": str(turn.conversation_id),
        "messages/pk": str(turn.answer_id),
        "pages/page": "1",
        "turns/pk": str(turn.pk),
        "shares/pk": str(share.pk),
        "team-shares/pk": str(team_share.pk),
        "shared-with-me/pk": str(team_share.pk),
        "welcome/pk": str(owner.pk),
        "openid/pk": str(
            signs_in.pk
        ),  # it is switched off: what is open to anybody is in tests/accounts/test_openid.py
        "s/token": "never-made",  # a link that exists is for everybody: tests/chat/test_sharing.py
        "import/pk": str(brought.pk),
        "imports/pk": str(brought.pk),
        "results/pk": str(result.pk),
        "webhooks/pk": str(hook.pk),
        "deliveries/pk": str(delivery.pk),
        "tools/pk": str(server.pk),
        "connected-tools/pk": str(server.pk),
        "kind": "md",
        "logo/name": "of-none",
        "code": str(task.code),
        "projects/pk": str(project.pk),
        "personas/pk": str(persona.pk),
        "prompts/pk": str(saved.pk),
        "facts/pk": str(fact.pk),
        "memories/pk": str(fact.pk),
        "sources/number": "1",
        "citations/part": "0",
        "citation": "0",
        "reminders/pk": str(own.pk),
        "budget-profiles/pk": str(profile.pk),
        "system-prompts/pk": str(prompt.pk),
        "prompt-texts/name": "citations",
        "text/name": "citations",
        "models/pk": str(model.pk),
        "models/name": str(persona.pk),
        "permissions/permission": str(permission.pk),
        "invitations/pk": str(invitation.pk),
        "invitations/invitation": str(invitation.pk),
        "groups/group": str(people_group.pk),
        "shares/share": str(persona_share.pk),
        "members/member": str(member.user_id),
        "tasks/pk": str(task.pk),
        "code/code": task.code,
        "runs/pk": str(run.pk),
        "readings/pk": str(reading.pk),
        "limits/pk": str(limit.pk),
        "day/start": "2026-11-21",
        "month/start": "2026-11",
        "year/start": "2026",
        "summaries/pk": str(summary.pk),
        "daily/day": "2026-11-21",
        "files/pk": str(file.pk),
        "files/file": str(file.pk),
        "files/file_id": str(file.pk),
        "user/id": str(owner.pk),
        "tokens/pk": str(token.pk),
        "groups/pk": str(people_group.pk),
        "pictures/name": "admin-audit.webp",  # one of the guide, too
        "help/path": "use/sharing",  # a page of the guide, which everybody may read
        "second-factor/pk": str(Authenticator.objects.create(user=owner, type="webauthn", data={"name": PRIVATE}).pk),
        "sessions/pk": session_of(owner),
        "r/content_type_id": str(ContentType.objects.get_for_model(User).pk),
        "object_id": str(owner.pk),
        "app_label": "llm",
        "admin/url": "nothing-here",
        "format": "json",
    }
    yield Household(values, rows, {"prompts/pk": str(for_everybody.pk)})
    prompts = (prompt, summary_prompt, prompt_text, for_everybody, people_group, signs_in)
    for row in (provider, *prompts, profile, own, reminder, group, embedder, search, server, web_access, workspace):
        row.delete()


def session_of(owner: User) -> str:
    """The public name of a session that its owner has open."""
    return public_name(str(signed_in(owner).session.session_key))


def _grant(owner: User, server: ToolServer) -> ToolGrant:
    return ToolGrant.objects.create(
        user=owner,
        tool_server=server,
        address=server.base_url,
        issuer="http://127.0.0.1:9",
        token_endpoint="http://127.0.0.1:9/token",
        scope=PRIVATE,
        client_id=PRIVATE,
        client_secret=SECRET,
        auth_method="client_secret_post",
        access_token=SECRET,
        refresh_token=SECRET,
    )


def _people_group(name: str, member: User) -> PeopleGroup:
    group = PeopleGroup.objects.create(name=name)
    group.members.add(member)
    return group


def _turn(owner: User, model: Model, persona: Persona) -> Turn:
    conversation = Conversation.objects.create(owner=owner, title=PRIVATE, persona=persona)
    parts = [{"type": "text", "text": PRIVATE}]
    question = Message.objects.create(conversation=conversation, role="user", parts=parts)
    answer = Message.objects.create(
        conversation=conversation, parent=question, depth=1, role="assistant", parts=parts, model=model
    )
    Conversation.objects.filter(pk=conversation.pk).update(leaf=answer)
    return Turn.objects.create(
        conversation=conversation, user_message=question, answer=answer, model=model, status="done"
    )


def _summary(turn: Turn) -> tuple[Summary, SummaryJob]:
    now = turn.user_message.created
    summary = Summary.objects.create(
        conversation=turn.conversation,
        first=turn.user_message,
        last=turn.user_message,
        messages=1,
        span_start=now,
        span_end=now,
        as_of=now,
        sections=[{"name": "Now", "text": PRIVATE}],
        tokens_in=2,
        tokens_out=1,
        timezone="UTC",
        prompt_version=0,
    )
    return summary, SummaryJob.objects.create(conversation=turn.conversation, status="done")


def _project(owner: User, reader: User) -> tuple[Project, File, Membership]:
    project = Project.objects.create(owner=owner, name=PRIVATE, instructions=PRIVATE)
    file = File.objects.create(owner=owner, name=f"{PRIVATE}.txt", size=1, sha256="0" * 64, status="failed")
    ProjectFile.objects.create(project=project, file=file)
    return project, file, Membership.objects.create(project=project, user=reader)


def _shared(persona: Persona, member: Membership, group: PeopleGroup) -> PersonaShare:
    Membership.objects.create(project=member.project, group=group)
    return PersonaShare.objects.create(persona=persona, user=member.user, username="shared")


def _run(owner: User, task: Task) -> Run:
    place, now = Conversation.objects.create(owner=owner, title=PRIVATE), timezone.now()
    words = {"needs": PRIVATE, "detail": PRIVATE}
    return Run.objects.create(owner=owner, task=task, conversation=place, status="waiting", heartbeat=now, **words)


def _reading(turn: Turn, file: File) -> Reading:
    words = {"question": PRIVATE, "answer": PRIVATE, "file_name": PRIVATE, "detail": PRIVATE}
    numbers = {"calls": 2, "tokens": 1, "passages": [9]}
    owner, place = turn.conversation.owner, turn.conversation
    reading = Reading.objects.create(person=owner, conversation=place, file=file, status="stopped", **words, **numbers)
    ReadingFile.objects.create(reading=reading, file=file, name=PRIVATE, start=0, end=9)
    ReadingPart.objects.create(reading=reading, start=0, end=9, state="done", findings=PRIVATE)
    return reading


def _webhook(owner: User) -> tuple[Webhook, WebhookDelivery]:
    hook = Webhook.objects.create(
        owner=owner, url=f"http://127.0.0.1:9/{PRIVATE}", origin="", secret=SECRET, events=["file.ready"]
    )
    payload = {"type": "file.ready", "data": {"file": str(hook.pk), "url": f"/{PRIVATE}"}}
    return hook, WebhookDelivery.objects.create(
        webhook=hook, event=hook.pk, type="file.ready", payload=payload, status="failed"
    )


def _task(owner: User) -> tuple[Task, TaskChange]:
    task = create_task(actor=Actor(owner), new=NewTask(PRIVATE, notes=PRIVATE))
    return task, TaskChange.objects.of(task).get()


def signed_in(person: User, **options: Any) -> Client:
    """Return a browser in which the person has just signed in, so that pages that need a fresh sign-in open too."""
    client = Client(raise_request_exception=False, REMOTE_ADDR=ELSEWHERE, **options)
    client.force_login(person)
    session = client.session
    session[SIGNED_IN] = int(time())
    session.save()
    return client


def _result(turn: Turn) -> ToolResult:
    """Store a whole result of a tool of the turn."""
    return ToolResult.objects.create(
        owner=turn.conversation.owner,
        conversation=turn.conversation,
        message=turn.answer,
        tool="served__tool",
        text=PRIVATE,
        size=len(PRIVATE),
        characters=len(PRIVATE),
    )
