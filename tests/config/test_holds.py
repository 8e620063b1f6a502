"""Legal holds: rows under one survive everything that removes rows.

The addresses come from the URLconf, so that a new one is tried when it is added; sweeps are in
`tests/chat/test_retention.py`.
"""

from collections.abc import Callable
from functools import partial

import pytest
from django.apps import apps
from django.db.models import CASCADE, ForeignKey

from accounts.access.holds import paths_to_holds
from accounts.models import User
from accounts.services import delete_user
from chat.conversations.services import update_conversation
from chat.models import Attachment, Conversation, Message
from core.errors import ProductError
from files.models import File
from files.services import delete as delete_file
from personas.models import Persona, Reminder
from personas.services import PersonaFields, save_reminder, update_persona
from projects.models import Project
from projects.planner.models import Run
from projects.planner.rules import Actor
from projects.planner.services import delete as delete_task
from projects.saved_prompts.models import SavedPrompt
from projects.saved_prompts.services import update_saved_prompt
from projects.services import update_project
from tests.config.household import PRIVATE, Household, signed_in
from tests.config.test_access import ask
from workspace.administration.erasing import erase_person

HELD = "under a legal hold"
# Rows of a person that no service removes but with what they belong to, or that say what somebody may or wants to do
# and hold nothing that they wrote or received.
WITHOUT = {
    "accounts.ApiToken",
    "accounts.IdempotentAnswer",
    "accounts.Limit",
    "accounts.OpenIDIdentity",
    "accounts.Session",
    "accounts.Webhook",
    "chat.Mention",
    "chat.Run",
    "chat.RunMandate",
    "chat.Tag",
    "chat.TeamShare",
    "personas.PersonaShare",
    "projects.CodeSeries",
    "projects.Invitation",
    "projects.Membership",
    "projects.TaskChange",
}


def test_it_is_said_of_each_kind_of_row_whether_a_hold_keeps_it() -> None:
    own = {
        model._meta.label
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if isinstance(field, ForeignKey) and field.related_model is User and field.remote_field.on_delete is CASCADE
        if model.__module__.split(".")[0] in ("accounts", "files", "personas", "projects", "chat", "workspace")
    }
    assert own - WITHOUT <= {model._meta.label for model in apps.get_models() if paths_to_holds(model)}


def test_no_address_removes_what_is_under_a_hold(household: Household, people: Callable[..., User]) -> None:
    owner = next(row for row in household.rows if isinstance(row, User))
    held_rows = [row for row in household.rows if paths_to_holds(type(row))]
    held_rows = [row for row in held_rows if owner.pk in owners(row)]
    User.objects.filter(pk=owner.pk).update(legal_hold=True)
    admin, refused, wrong = people(is_staff=True, is_superuser=True), 0, []
    for person in (owner, admin):
        browser = signed_in(person)
        for address in household.addresses():
            if not address.parameters or address.admin == (person is owner):
                continue
            method = "DELETE" if address.url.startswith("/api/") else "POST"
            answer = ask(browser, method, address.url)
            browser.force_login(person)
            refused += answer.status_code == 409 and HELD in answer.text
            removed = [row for row in held_rows if not type(row)._base_manager.filter(pk=row.pk).exists()]
            wrong += [(method, address.url, row) for row in removed]
            held_rows = [row for row in held_rows if row not in removed]
    assert not wrong
    assert refused > 12
    Reminder.objects.filter(text=PRIVATE).exclude(pk__in=[row.pk for row in household.rows]).delete()  # of copies
    written = {row.pk for row in household.rows if isinstance(row, Message)}
    assert Message.with_deleted.filter(pk__in=written).count() == len(written) == 2


def test_no_text_and_no_name_under_a_hold_is_written_over(household: Household) -> None:
    rows = {type(row): row for row in household.rows}
    owner, project = rows[User], rows[Project]
    assert isinstance(owner, User) and isinstance(project, Project)
    persona = Persona.objects.create(owner=owner, name="Held", description="Says little.", instructions="First.")
    prompt = SavedPrompt.objects.create(owner=owner, name="held", text="First.\nOf two lines.")
    place = Conversation.objects.create(owner=owner, title="First", titled=True)
    Project.objects.filter(pk=project.pk).update(instructions="First.", owner=owner)
    update_persona(user=owner, persona=persona, fields={}, reminder="Remember.")
    reminder = persona.reminders.get()
    reminder.text = "Second."
    acts: list[Callable[[], object]] = [
        lambda: update_persona(user=owner, persona=persona, fields={"instructions": "Second."}),
        lambda: update_project(user=owner, project=project, fields={"instructions": "Second."}),
        lambda: update_conversation(user=owner, conversation=place, fields={"title": "Second"}),
        lambda: update_persona(user=owner, persona=persona, fields={"name": "Second"}),
        lambda: update_persona(user=owner, persona=persona, fields={"description": "Says more."}),
        lambda: update_persona(user=owner, persona=persona, fields={}, reminder=""),
        lambda: update_project(user=owner, project=project, fields={"name": "Second"}),
        lambda: update_saved_prompt(user=owner, prompt=prompt, fields={"text": "Second."}),
        lambda: update_saved_prompt(user=owner, prompt=prompt, fields={"name": "second"}),
        lambda: save_reminder(user=owner, reminder=reminder),
    ]
    User.objects.filter(pk=owner.pk).update(legal_hold=True)
    for act in acts:
        with pytest.raises(ProductError, match=HELD):
            act()
    unchanged: PersonaFields = {"name": "Held", "date_awareness": "none", "instructions": "First."}
    update_persona(user=owner, persona=persona, fields=unchanged)
    update_saved_prompt(user=owner, prompt=prompt, fields={"name": "held", "text": "First.\r\nOf two lines."})
    update_conversation(user=owner, conversation=place, fields={"title": "First ", "archived": True})
    User.objects.filter(pk=owner.pk).update(legal_hold=False)
    for act in acts[:3]:
        act()


def test_a_hold_on_one_conversation_keeps_its_title(people: Callable[..., User]) -> None:
    owner = people()
    frozen, other, unnamed = (Conversation.objects.create(owner=owner, title=title) for title in ("First", "First", ""))
    Conversation.objects.filter(pk__in=[frozen.pk, unnamed.pk]).update(legal_hold=True)
    with pytest.raises(ProductError, match=HELD):
        update_conversation(user=owner, conversation=frozen, fields={"title": "Second"})
    for place in (other, unnamed):
        update_conversation(user=owner, conversation=place, fields={"title": "Second"})
    titles = dict(Conversation.objects.filter(owner=owner).values_list("pk", "title"))
    assert titles == {frozen.pk: "First", other.pk: "Second", unnamed.pk: "Second"}


def owners(row: object) -> set[object]:
    return {getattr(row, name, None) for name in ("pk", "owner_id", "person_id")}


def test_a_hold_on_a_conversation_keeps_what_belongs_to_it(household: Household, people: Callable[..., User]) -> None:
    """The hold keeps the conversation's person, its task, and a file of another person in it."""
    rows = {type(row): row for row in household.rows}
    owner, run, file = rows[User], rows[Run], rows[File]
    assert isinstance(owner, User) and isinstance(run, Run) and isinstance(file, File)
    other, admin = people(), people(is_staff=True, is_superuser=True)
    place = Conversation.objects.create(owner=other, legal_hold=True)
    message = Message.objects.create(conversation=place, role="user", parts=[])
    Attachment.objects.create(message=message, file=file, name=file.name, ordinal=0)
    Conversation.objects.filter(pk=run.conversation_id).update(legal_hold=True)
    acts: list[Callable[[], None]] = [
        lambda: delete_task(actor=Actor(owner), task=run.task),
        lambda: delete_file(user=owner, file=file),
        lambda: delete_user(user=admin, person=User.objects.get(pk=other.pk)),
    ]
    acts += [partial(erase_person, user=admin, person=person) for person in (owner, other)]
    for act in acts:
        with pytest.raises(ProductError, match=HELD):
            act()
    Conversation.objects.filter(owner__in=[owner, other]).update(legal_hold=False)
    for act in acts[:3]:
        act()
    assert not Run.objects.filter(pk=run.pk).exists() and not File.objects.filter(pk=file.pk).exists()
