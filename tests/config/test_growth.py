"""Tables that grow with use can be divided by person and by time, as docs/operate/growth.md says."""

from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.db import connection, models

from accounts.models import User
from chat.ledger.models import ModelCall
from chat.models import Message, Turn
from core.audit.models import Entry
from tests.chat.conversations import past
from tests.config.sources import apps as ours

# Tables to which every exchange, or every act, adds a row, and the column that says whose it is.
GROWING: dict[type[models.Model], str] = {
    Message: "owner_id",
    Turn: "owner_id",
    ModelCall: "person_id",
    Entry: "actor_id",
}
# What a unique key of theirs would lack for partitions by the time in their ids.
WITHOUT_ID = {
    Message: set(),
    Turn: {("answer_id",), ("conversation_id", "slot"), ("conversation_id", "idempotency_key", "slot")},
    ModelCall: {("turn_id", "number")},
    Entry: {("sequence",)},
}
# What is the workspace's, made by its administrators, and what outlives the person that it names.
STAYS = {
    *("accounts.AdminRecord", "accounts.OpenIDProvider", "accounts.PeopleGroup", "accounts.Workspace", "audit.Entry"),
    *("chat.ModelCall", "chat.PersonSum", "chat.PlaceSum", "chat.UsageDay", "chat.UsageSum"),
    *("files.Embedder", "files.Reranker", "files.SpeechServer"),
    *("llm.Model", "llm.OpenApiDocument", "llm.Provider", "llm.ToolClient", "llm.ToolServer"),
    *("llm.WebAccess", "llm.WebSearch", "llm.WorkspaceVersion"),
    *("personas.BudgetProfile", "personas.PromptText", "personas.Reminder"),
    *("personas.SummaryPrompt", "personas.SystemPrompt"),
}


def unique_keys(kind: type[models.Model]) -> set[tuple[str, ...]]:
    """Return the columns of each unique index of the table, without the primary key."""
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, kind._meta.db_table)
    return {tuple(each["columns"]) for each in constraints.values() if each["unique"] and not each["primary_key"]}


def goes(kind: type[models.Model], below: frozenset[type[models.Model]] = frozenset()) -> bool:
    """Return whether a row is deleted with a person, maybe through several tables."""
    if kind is User:
        return True
    above: set[Any] = {
        field.related_model
        for field in kind._meta.concrete_fields
        if getattr(field.remote_field, "on_delete", None) is models.CASCADE
    }
    return any(goes(each, below | {kind}) for each in above - below - {kind})


@pytest.mark.django_db
@pytest.mark.parametrize("kind", GROWING)
def test_what_grows_with_use_says_itself_whose_it_is_and_has_the_time_in_its_key(kind: type[models.Model]) -> None:
    names = [field.column for field in kind._meta.concrete_fields]
    assert GROWING[kind] in names
    key: Any = kind._meta.pk
    assert key.column == "id" and key.get_default().version == 7
    assert unique_keys(kind) == WITHOUT_ID[kind]


def test_what_is_somebodys_goes_with_them() -> None:
    kinds = [kind for kind in apps.get_models() if kind._meta.app_config.name.partition(".")[0] in {"core", *ours()}]
    assert len(kinds) > 50
    assert {kind._meta.label for kind in kinds if not goes(kind)} == STAYS


@pytest.mark.django_db
def test_a_turn_belongs_to_whom_its_conversation_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds too for a turn of code that does not set the owner, and for one from before the column."""
    people = [User.objects.create_user(name) for name in ("one", "other")]
    turns: dict[UUID, Turn] = {}
    for person in people:
        question, answer = Message.objects.filter(conversation=past(person, 1)).order_by("depth")
        turns[person.pk] = Turn.objects.create(
            conversation=question.conversation, user_message=question, answer=answer, status=Turn.Status.DONE
        )

    def owners() -> dict[UUID, UUID]:
        return dict(Turn.objects.values_list("owner", "pk"))

    expected = {person: turn.pk for person, turn in turns.items()}
    assert owners() == expected
    Turn.objects.update(owner=None)
    migration = import_module("chat.migrations.0057_fill_owners_of_turns")
    monkeypatch.setattr(migration, "BATCH", 1)
    migration.fill(None, connection.schema_editor())
    assert owners() == expected
