"""A workspace of two people, and their ways to act."""

import json
from dataclasses import dataclass, field
from time import time
from typing import Any
from uuid import uuid4

from django.test import Client
from django.urls import reverse

from accounts.access.login import SIGNED_IN
from accounts.models import ApiToken, User
from accounts.services import create_token
from chat.models import Conversation, Message
from core.audit.models import Entry
from files.models import File, FileText
from llm.models import Model, Provider
from personas.models import Persona
from projects.models import Project

PASSWORD = "correct horse battery"
SECRET = "SECRET-that-no-row-may-have"
TEXT = "TEXT-that-somebody-wrote"
AGENT = "203.0.113.9"


@dataclass
class World:
    """`admin` administers in `staff`, and with `program`; `olga` is at her `page`."""

    admin: User
    olga: User
    token: str = ""
    token_row: ApiToken = field(init=False)

    def __post_init__(self) -> None:
        self.token_row, self.token = create_token(user=self.admin, name="robot", scopes=ApiToken.SCOPES)
        self.page, self.staff = client(self.olga), client(self.admin)

    def api(self, method: str, path: str, body: Any = None, *, expect: tuple[int, ...] = (200, 201, 202, 204)) -> Any:
        answer = Client(REMOTE_ADDR=AGENT).generic(
            method,
            f"/api/v1/{path}",
            json.dumps(body or {}),
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        assert answer.status_code in expect, answer.content
        return json.loads(answer.content) if answer.content else None

    def post(self, path: str, form: dict[str, Any] | None = None, *, who: Client | None = None) -> Any:
        """Post a form as olga, or in the browser `who`."""
        answer = (who or self.page).post(path, form or {})
        assert answer.status_code in (200, 204, 302, 422), (path, answer.status_code, answer.content[:2000])
        return answer

    def manage(self, name: str, row: Any = None, form: dict[str, Any] | None = None) -> Any:
        """Post a form as the administrator, at the admin's address of this name. It confirms dialogs too."""
        address = reverse(f"admin:{name}", args=[] if row is None else [row.pk])
        answer = self.staff.post(address, {"_form_submitted": "on", "post": "yes", **(form or {})})
        shown = getattr(answer, "context", None)
        errors = [f.errors for f in (shown or {}).get("adminform", ())] if shown and "adminform" in shown else ""
        assert answer.status_code in (200, 302), (address, answer.status_code, answer.content[:500])
        assert not errors, answer.context["errors"]
        return answer

    def provider(self) -> Provider:
        return Provider.objects.create(name=f"p-{uuid4().hex[:8]}", base_url="http://127.0.0.1:9/v1", api_key=SECRET)

    def model(self) -> Model:
        return Model.objects.create(provider=self.provider(), name=f"m-{uuid4().hex[:8]}")

    def conversation(self, owner: User) -> Conversation:
        row = Conversation.objects.create(owner=owner, title=TEXT)
        question = Message.objects.create(conversation=row, role="user", parts=[{"type": "text", "text": TEXT}])
        Conversation.objects.filter(pk=row.pk).update(leaf=question)
        row.refresh_from_db()
        return row

    def answer(self, owner: User) -> Message:
        conversation = self.conversation(owner)
        row = Message.objects.create(
            conversation=conversation,
            parent_id=conversation.leaf_id,
            depth=1,
            role="assistant",
            parts=[{"type": "text", "text": TEXT}],
        )
        Conversation.objects.filter(pk=conversation.pk).update(leaf=row)
        return row

    def text(self, owner: User) -> File:
        """A file that can be read."""
        file = self.file(owner)
        FileText.objects.create(file=file, text=TEXT)
        return file

    def file(self, owner: User) -> File:
        return File.objects.create(owner=owner, name=f"{TEXT}.txt", size=1, sha256="0" * 64, status="ready")

    def persona(self, owner: User) -> Persona:
        return Persona.objects.create(owner=owner, name=f"{TEXT} {uuid4().hex}", instructions=TEXT)

    def project(self, owner: User) -> Project:
        return Project.objects.create(owner=owner, name=TEXT, instructions=TEXT)


def client(person: User) -> Client:
    """Return a browser in which the person has just signed in."""
    browser = Client(REMOTE_ADDR=AGENT)
    browser.force_login(person)
    session = browser.session
    session[SIGNED_IN] = int(time())
    session.save()
    return browser


def texts_of(entries: list[Entry]) -> str:
    """Everything that these rows hold, as text."""
    fields = [each.attname for each in Entry._meta.concrete_fields]
    return json.dumps([{name: getattr(entry, name) for name in fields} for entry in entries], default=str)
