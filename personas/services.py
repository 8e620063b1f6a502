"""Every change to personas, system prompts, reminders and budget profiles."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import connection, transaction
from django.db.models import F, Max, Q

from accounts.models import User
from llm import tokens
from llm.errors import NotFound, ProductError
from llm.models import Model
from llm.services import require_staff
from personas.models import BudgetProfile, Persona, Reminder, SystemPrompt

ONE_AT_A_TIME = 7_301  # an advisory lock: two admins saving at once get two versions, of which one is active


def counted(text: str) -> dict[str, int]:
    """A prompt version's tokens, counted once with the catch-all; people compare versions by them."""
    return {tokens.CATCH_ALL: tokens.count(text)}


@transaction.atomic
def save_system_prompt(*, user: User | None, text: str, note: str = "", activate: bool = True) -> SystemPrompt:
    """Stores the text as the next version, active unless told otherwise."""
    require_staff(user)
    if not text.strip():
        raise ProductError("empty_prompt", "The system prompt is empty. Write one, or roll back to an earlier version.")
    _wait_for_other_admins()
    newest = SystemPrompt.objects.aggregate(newest=Max("version"))["newest"] or 0
    prompt = SystemPrompt.objects.create(version=newest + 1, text=text, note=note, author=user, tokens=counted(text))
    if activate:
        activate_system_prompt(user=user, prompt=prompt)
    return prompt


@transaction.atomic
def activate_system_prompt(*, user: User | None = None, prompt: SystemPrompt) -> None:
    """Also the way back to an earlier version."""
    require_staff(user)
    _wait_for_other_admins()
    SystemPrompt.objects.filter(active=True).exclude(pk=prompt.pk).update(active=False)
    SystemPrompt.objects.filter(pk=prompt.pk).update(active=True)
    prompt.active = True


def _wait_for_other_admins() -> None:
    """Until the transaction ends nobody else changes what is active or the default."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [ONE_AT_A_TIME])


def save_profile(*, user: User, profile: BudgetProfile) -> None:
    """Stores a row that the caller's form validated."""
    require_staff(user)
    profile.save()


@transaction.atomic
def set_default_profile(*, user: User | None = None, profile: BudgetProfile) -> None:
    require_staff(user)
    _wait_for_other_admins()
    BudgetProfile.objects.filter(default=True).exclude(pk=profile.pk).update(default=False)
    BudgetProfile.objects.filter(pk=profile.pk).update(default=True)
    profile.default = True


def default_profile() -> BudgetProfile:
    """The profile for personas that name none; without any row, the documented defaults."""
    return BudgetProfile.objects.filter(default=True).first() or BudgetProfile(name="default")


@transaction.atomic
def create_persona(*, user: User, fields: Mapping[str, Any], reminder: str = "") -> Persona:
    """`fields` were validated by the caller's form or serializer; `reminder` is the persona's own."""
    persona = Persona(owner=user, **fields)
    persona.tokens = counted(persona.instructions)
    persona.save()
    _set_own_reminder(persona, reminder)
    return persona


@transaction.atomic
def update_persona(*, user: User, persona: Persona, fields: Mapping[str, Any], reminder: str | None = None) -> Persona:
    """Each change makes a new version. Raises `NotFound` for somebody else's persona."""
    require_owner(user=user, persona=persona)
    for name, value in fields.items():
        setattr(persona, name, value)
    persona.tokens = counted(persona.instructions)
    persona.save()
    Persona.objects.filter(pk=persona.pk).update(version=F("version") + 1)
    persona.refresh_from_db(fields=["version"])
    if reminder is not None:
        _set_own_reminder(persona, reminder)
    return persona


def set_reminders(*, user: User, persona: Persona, reminders: Iterable[Reminder]) -> None:
    """Which of the shared reminders the persona uses."""
    require_owner(user=user, persona=persona)
    persona.reminders.set(reminders)


def save_reminder(*, user: User, reminder: Reminder) -> None:
    require_staff(user)
    reminder.save()


def delete_persona(*, user: User, persona: Persona) -> None:
    require_owner(user=user, persona=persona)
    persona.delete()


def require_owner(*, user: User, persona: Persona) -> None:
    if persona.owner_id != user.pk and not user.is_staff:
        raise NotFound("persona")


def _set_own_reminder(persona: Persona, text: str) -> None:
    """Replaces the persona's own reminder; one that other personas have chosen too stays theirs."""
    before = list(persona.reminders.filter(scope=Reminder.Scope.PERSONA))
    persona.reminders.remove(*before)
    Reminder.objects.filter(pk__in=[reminder.pk for reminder in before], personas=None).delete()
    if text.strip():
        persona.reminders.add(Reminder.objects.create(text=text.strip(), scope=Reminder.Scope.PERSONA))


def model_for(persona: Persona | None) -> Model:
    """The persona's model when it is usable, else the workspace's default, else any. Raises `no_model`."""
    usable = Model.objects.usable()
    if persona is not None and persona.model_id is not None:
        chosen = usable.filter(pk=persona.model_id).first()
        if chosen is not None:
            return chosen
    model = usable.order_by("-default", "created").first()
    if model is None:
        raise ProductError(
            "no_model", "No model is set up yet. An admin adds a provider and a model in the admin.", status=503
        )
    return model


def reminders_for(persona: Persona | None) -> list[str]:
    """The texts of the reminders that stand everywhere and of those the persona has chosen, oldest first."""
    mine = Q(scope=Reminder.Scope.EVERYWHERE)
    if persona is not None:
        mine |= Q(scope=Reminder.Scope.PERSONA, personas=persona)
    return list(Reminder.objects.filter(mine, enabled=True).distinct().values_list("text", flat=True))
