"""Every change to personas, prompt versions, reminders and budget profiles."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Max, Q
from django.utils import timezone

from accounts.access.holds import require_free, require_rewritable
from accounts.access.rights import models_of, require
from accounts.models import May, User
from core.audit.services import changed, record, record_saved, stored
from core.errors import ProductError
from core.locks import lock
from core.permissions import has_right, require_right, require_store
from core.requests import get_or_404
from core.sentences import Sentence
from core.text import unix_lines
from llm import tokens
from llm.models import Model
from personas.handing_over import require_hand_over
from personas.models import BudgetProfile, Persona, PromptText, PromptVersion, Reminder, SystemPrompt
from personas.sharing.names import NAMES, free_name, require_free_name
from personas.sharing.roles import require_editor, require_owner
from personas.texts import BUILT_IN, TEXTS, Own, Texts, checked
from personas.variables import check_variables
from workspace.models import Workspace
from workspace.models.version import VersionedCache

Version = TypeVar("Version", bound=PromptVersion)

ONE_AT_A_TIME = "active prompts and default profile"  # two who save at once get two versions, of which one is active
NO_VERSION = "0"  # the tag of what has no active version
# Of a persona; everything else goes into a copy.
NOT_COPIED = {"id", "owner", "name", "visibility", "version", "tokens", "created", "updated"}


def counted(text: str) -> dict[str, int]:
    """A prompt version's tokens, counted once with the catch-all; people compare versions by them."""
    return {tokens.CATCH_ALL: tokens.count(text)}


def changed_meanwhile(what: Sentence) -> ProductError:
    return ProductError(
        "changed_meanwhile",
        Sentence(
            "Somebody changed {what} after you read it, and what you send does not have that change. Read it again, "
            "put both together, and save once more.",
            what=what,
        ),
        status=412,
    )


@transaction.atomic
def save_prompt(
    *,
    user: User | None,
    kind: type[Version],
    text: str,
    note: str = "",
    activate: bool = True,
    based_on: Collection[str] | None = None,
) -> Version:
    """Stores the text as the next version of its kind, active unless told otherwise.

    `based_on`: tags of which the active version must have one, else `changed_meanwhile` (412).
    """
    require_right(user, "add", kind)
    if not text.strip():
        name = str(kind._meta.verbose_name)
        sentence = Sentence("The {name} is empty. Write one, or go back to an earlier version.", name=name)
        raise ProductError("empty_prompt", sentence)
    if kind is SystemPrompt:
        check_variables(text)
    return _next_version(user, kind(text=unix_lines(text), note=note), activate=activate, based_on=based_on)


@transaction.atomic
def save_text(
    *,
    user: User | None,
    name: str,
    text: str,
    note: str = "",
    activate: bool = True,
    based_on: Collection[str] | None = None,
) -> PromptText:
    """As `save_prompt`, the next version of one of `personas.texts.TEXTS`. Raises what `checked` raises, too."""
    require_right(user, "add", PromptText)
    row = PromptText(name=name, text=checked(name, text), note=note)
    return _next_version(user, row, activate=activate, based_on=based_on)


def _next_version(user: User | None, prompt: Version, *, activate: bool, based_on: Collection[str] | None) -> Version:
    lock(ONE_AT_A_TIME)
    _require_active(prompt, based_on)
    prompt.version = 1 + (prompt.history().aggregate(newest=Max("version"))["newest"] or 0)
    prompt.author, prompt.tokens = user, counted(prompt.text)
    prompt.save(force_insert=True)
    _record_prompt(user, "added", prompt)
    if activate:
        activate_prompt(user=user, prompt=prompt)
    return prompt


@transaction.atomic
def activate_prompt(
    *, user: User | None = None, prompt: PromptVersion, based_on: Collection[str] | None = None
) -> None:
    """Also the way back to an earlier version. `based_on` as with `save_prompt`."""
    require_right(user, "change", prompt)
    lock(ONE_AT_A_TIME)
    _require_active(prompt, based_on)
    rows = prompt.history()
    rows.filter(active=True).exclude(pk=prompt.pk).update(active=False)
    rows.filter(pk=prompt.pk).update(active=True)
    prompt.active = True
    _record_prompt(user, "activated", prompt)


def _record_prompt(user: User | None, verb: str, prompt: PromptVersion) -> None:
    kind = {SystemPrompt: "system_prompt", PromptText: "prompt_text"}.get(type(prompt), "summary_prompt")
    name = prompt.name if isinstance(prompt, PromptText) else ""
    record(user=user, action=f"{kind}.{verb}", row=prompt, name=name, changes={"version": prompt.version})


@transaction.atomic
def use_built_in_text(*, user: User, name: str, based_on: Collection[str] | None = None) -> None:
    """No version of the text is active any more; all of them stay. `based_on` as with `save_prompt`."""
    require_right(user, "change", PromptText)
    lock(ONE_AT_A_TIME)
    text = PromptText(name=name)
    _require_active(text, based_on)
    before = text.history().filter(active=True).first()
    if before is not None:
        text.history().filter(active=True).update(active=False)
        said = {"version": [before.version, 0]}
        record(user=user, action="prompt_text.built_in_activated", row=before, name=name, changes=said)


def _require_active(prompt: PromptVersion, based_on: Collection[str] | None) -> None:
    active = prompt.history().filter(active=True).first()
    if based_on is not None and (active.tag if active else NO_VERSION) not in based_on:
        raise changed_meanwhile(Sentence("the {verbose_name}", verbose_name=str(prompt._meta.verbose_name)))


@transaction.atomic
def save_profile(*, user: User, profile: BudgetProfile, default: bool = False) -> None:
    """Stores a row that the caller's form validated; `default` makes it the default."""
    require_store(user, profile)
    before = stored(profile)
    profile.save()
    record_saved(user=user, kind="budget_profile", row=profile, before=before, name=profile.name)
    if default:
        set_default_profile(user=user, profile=profile)


@transaction.atomic
def set_default_profile(*, user: User | None = None, profile: BudgetProfile) -> None:
    require_right(user, "change", profile)
    lock(ONE_AT_A_TIME)
    BudgetProfile.objects.filter(default=True).exclude(pk=profile.pk).update(default=False)
    BudgetProfile.objects.filter(pk=profile.pk).update(default=True)
    profile.default = True
    record(user=user, action="budget_profile.made_default", row=profile, name=profile.name)


@transaction.atomic
def delete_profile(*, user: User, profile: BudgetProfile) -> None:
    """Personas that name it go over to the default. Raises `default_profile` for the default itself."""
    require_right(user, "delete", profile)
    lock(ONE_AT_A_TIME)
    if BudgetProfile.objects.filter(pk=profile.pk, default=True).exists():
        raise ProductError(
            "default_profile", "This is the default profile. Make another one the default, then delete it.", status=409
        )
    record(user=user, action="budget_profile.deleted", row=profile, name=profile.name)
    profile.delete()


class Rules(NamedTuple):
    """What administrators have set for every prompt: system prompt, budget profiles, texts, and the workspace."""

    system_prompt: SystemPrompt | None
    profiles: Mapping[UUID, BudgetProfile]
    texts: Texts
    workspace: Workspace

    def profile_of(self, persona: Persona | None) -> BudgetProfile:
        """The persona's, else the default; without any row, the documented defaults."""
        named = self.profiles.get(persona.budget_profile_id) if persona and persona.budget_profile_id else None
        default = (each for each in self.profiles.values() if each.default)
        return copy(named or next(default, None) or BudgetProfile(name="default"))


def _read_rules() -> Rules:
    texts = texts_of(PromptText.objects.filter(active=True))
    prompt, workspace = SystemPrompt.objects.filter(active=True).first(), Workspace.objects.first() or Workspace()
    return Rules(prompt, BudgetProfile.objects.in_bulk(), texts, workspace)


def texts_of(rows: Iterable[PromptText]) -> Texts:
    """With these versions in the place of the built-in ones; a text that the product has no more is passed over."""
    return Texts({row.name: Own(row.version, row.text) for row in rows if row.name in TEXTS})


def texts_then(versions: Mapping[str, str]) -> Texts:
    """As a report names them: what is not named was the built-in text. A query only where one is."""
    named = [Q(name=name, version=number) for name, number in versions.items() if name in TEXTS]
    return texts_of(PromptText.objects.filter(reduce(or_, named))) if named else BUILT_IN


_rules = VersionedCache(_read_rules)


def rules_at(version: UUID | None = None) -> Rules:
    """As they were at this version of the workspace or later; as they are now without one."""
    return _rules.get(version)


def default_profile() -> BudgetProfile:
    """The profile for personas that name none; without any row, the documented defaults."""
    return BudgetProfile.objects.filter(default=True).first() or BudgetProfile(name="default")


@transaction.atomic
def create_persona(*, user: User, fields: Mapping[str, Any], reminder: str = "", owner: User | None = None) -> Persona:
    """`fields` were validated by the caller's form or serializer; `reminder` is the persona's own. An administrator
    makes one for another `owner`. Raises `name_taken` (409) and `right_missing` (403)."""
    persona = Persona(owner=owner or user, **fields)
    if persona.owner != user:
        require_right(user, "add", persona)
    require_publishing(user, persona)
    lock(NAMES)
    require_free_name(persona)
    persona.instructions = unix_lines(persona.instructions)
    check_variables(persona.instructions)
    persona.tokens = counted(persona.instructions)
    persona.save()
    _set_own_reminder(persona, reminder)
    _record_persona(user, Persona(), persona)
    return persona


def require_publishing(user: User, persona: Persona) -> None:
    """Raises `right_missing` (403) for what others are to see. Administrators with the right to change personas may,
    whatever their groups."""
    if persona.visibility != Persona.Visibility.PRIVATE and not has_right(user, "change", persona):
        require(user, May.PUBLISH_PERSONAS)


def _record_persona(user: User, before: Persona, after: Persona) -> None:
    """By what others notice: that it is offered to everybody, or no more."""
    changes = changed(before, after)
    if "visibility" in changes:
        verb = "published" if after.visibility == Persona.Visibility.WORKSPACE else "withdrawn"
    else:
        verb = "made" if before._state.adding else "handed_over" if "owner" in changes else "changed"
    record(user=user, action=f"persona.{verb}", row=after, changes=changes)


@transaction.atomic
def update_persona(
    *,
    user: User,
    persona: Persona,
    fields: Mapping[str, Any],
    reminder: str | None = None,
    based_on: Collection[str] | None = None,
) -> Persona:
    """The persona with its changes, which make a new version; what changes nothing makes none.

    `based_on`: tags of which the stored persona must have one, else `changed_meanwhile` (412). Raises `name_taken`,
    `legal_hold` (409) where a text would be lost, and what `require_hand_over` raises where `fields` has another owner.
    """
    locked = _locked(user, persona, based_on)
    before = copy(locked)
    given: dict[str, Any] = {
        name: unix_lines(value) if name == "instructions" else value for name, value in fields.items()
    }
    changes = {name: value for name, value in given.items() if getattr(locked, name) != value}
    check_variables(changes.get("instructions", ""))
    for name in ("name", "description", "instructions"):
        require_rewritable(locked, getattr(before, name), given.get(name, getattr(before, name)))
    if reminder is not None and unix_lines(reminder).strip() != locked.own_reminder:
        require_rewritable(locked, locked.own_reminder, unix_lines(reminder).strip())
        _set_own_reminder(locked, reminder)
    elif not changes:
        return locked
    if "owner" in changes:
        require_hand_over(user, locked, changes["owner"])
    if "visibility" in changes:
        require_owner(user=user, persona=locked)
    for name, value in changes.items():
        setattr(locked, name, value)
    if "visibility" in changes:
        require_publishing(user, locked)
    require_free_name(locked, before)
    locked.tokens = counted(locked.instructions)
    locked.version += 1
    locked.save()
    _record_persona(user, before, locked)
    return locked


@transaction.atomic
def record_opened(*, user: User, persona: Persona) -> None:
    """That an administrator has read the instructions of a persona that they do not see as a person."""
    record(user=user, action="persona.opened", row=persona)


def duplicate_persona(*, user: User, persona: Persona) -> Persona:
    """A private copy of a persona that the user can see, with its reminders; its `version` counts anew."""
    names = [field.name for field in Persona._meta.concrete_fields if field.name not in NOT_COPIED]
    fields = {name: getattr(persona, name) for name in names}
    fields["name"] = free_name(f"Copy of {persona.name}", user)
    return create_persona(user=user, fields=fields, reminder=persona.own_reminder)


def set_reminders(*, user: User, persona: Persona, reminders: Iterable[Reminder]) -> None:
    """Which of the shared reminders the persona uses."""
    require_editor(user=user, persona=persona)
    persona.reminders.set(reminders)
    Persona.objects.filter(pk=persona.pk).update(updated=timezone.now())


def save_reminder(*, user: User, reminder: Reminder, persona: Persona | None = None) -> None:
    """Stores a reminder that the caller's form validated; a new one of a persona comes with its `persona`.

    One that stands everywhere is for administrators, another for whoever may change each persona that uses it.
    """
    require_reminder(user=user, reminder=reminder, persona=persona)
    reminder.text = unix_lines(reminder.text)
    with transaction.atomic():
        before = stored(reminder)
        if before is not None:
            require_rewritable(reminder, before.text, reminder.text)
        reminder.save()
        record_saved(user=user, kind="reminder", row=reminder, before=before)
        if persona is not None:
            persona.reminders.add(reminder)
        reminder.personas.update(updated=timezone.now())


@transaction.atomic
def delete_reminder(*, user: User, reminder: Reminder) -> None:
    require_reminder(user=user, reminder=reminder)
    require_free(reminder)
    reminder.personas.update(updated=timezone.now())
    record(user=user, action="reminder.deleted", row=reminder)
    reminder.delete()


def require_reminder(*, user: User, reminder: Reminder, persona: Persona | None = None) -> None:
    """Raises an error for somebody who may not change it, or give it to `persona`."""
    personas = [*reminder.personas.all(), *([persona] if persona else ())]
    if reminder.scope == Reminder.Scope.EVERYWHERE or not personas:
        require_store(user, reminder)
    for persona in personas:
        require_editor(user=user, persona=persona)


@transaction.atomic
def delete_persona(*, user: User, persona: Persona, based_on: Collection[str] | None = None) -> None:
    """Its conversations and projects go on without it; reminders that nobody else uses go with it. Raises
    `legal_hold` (409)."""
    locked = _locked(user, persona, based_on)
    require_owner(user=user, persona=locked)
    require_free(locked)
    record(user=user, action="persona.deleted", row=locked)
    reminders = [reminder.pk for reminder in locked.reminders.filter(scope=Reminder.Scope.PERSONA)]
    locked.delete()
    Reminder.objects.filter(pk__in=reminders, personas=None).delete()


def delete_reminders_of(person: User) -> None:
    """Those of their personas alone, before these go with the person."""
    others = Reminder.objects.filter(personas__in=Persona.objects.exclude(owner=person))
    own = Reminder.objects.filter(scope=Reminder.Scope.PERSONA, personas__owner=person)
    Reminder.objects.filter(pk__in=own.values("pk")).exclude(pk__in=others.values("pk")).delete()


def _locked(user: User, persona: Persona, based_on: Collection[str] | None) -> Persona:
    """The row as it is stored, locked until the transaction ends, as long as it is what the caller read."""
    locked = get_or_404(Persona.objects.select_for_update(), persona.pk, "persona")
    require_editor(user=user, persona=locked)
    if based_on is not None and locked.tag not in based_on:
        raise changed_meanwhile(Sentence("this persona"))
    return locked


def _set_own_reminder(persona: Persona, text: str) -> None:
    """Replaces the persona's own reminder; one that other personas have chosen too stays theirs.

    One that is switched off stays as it is, since nobody saw it in the text that was changed.
    """
    before = list(persona.reminders.filter(scope=Reminder.Scope.PERSONA, enabled=True))
    persona.reminders.remove(*before)
    Reminder.objects.filter(pk__in=[reminder.pk for reminder in before], personas=None).delete()
    text = unix_lines(text).strip()
    if text:
        persona.reminders.add(Reminder.objects.create(text=text, scope=Reminder.Scope.PERSONA))


def model_for(persona: Persona | None, user: User | None) -> Model:
    """The persona's model when the user may use it, else the workspace's default, else any. Raises what `no_model` is.

    None is the workspace itself, which may use all.
    """
    usable = models_of(user) if user is not None else Model.objects.usable()
    if persona is not None and persona.model_id is not None:
        chosen = usable.filter(pk=persona.model_id).first()
        if chosen is not None:
            return chosen
    model = usable.order_by("-default", "created").first()
    if model is None:
        raise no_model()
    return model


def measured(text: str, model: Model | None = None, *, user: User | None = None) -> dict[str, Any]:
    """`text` as the model counts it: `tokens`, and what `percent` of its window that is, which is `exact` where its
    tokenizer is known. Without a usable model, as the default one does."""
    try:
        counting = model_for(Persona(model=model), user)
    except ProductError:
        return {"tokens": tokens.count(text.strip())}
    size = tokens.count(text.strip(), counting.tokenizer or tokens.CATCH_ALL)
    percent = -(-100 * size // counting.window) if counting.window else 0
    return {"tokens": size, "exact": bool(counting.tokenizer), "model": counting, "percent": percent}


def one_of(usable: Sequence[Model], persona: Persona | None) -> Model:
    """As `model_for`, of those that are usable, the default first."""
    named = (model for model in usable if persona is not None and model.pk == persona.model_id)
    model = next(named, None) or next(iter(usable), None)
    if model is None:
        raise no_model()
    return model


def no_model() -> ProductError:
    """None is set up, or the person's groups may use none."""
    if Model.objects.usable().exists():
        sentence = Sentence("None of your groups may use a model. Ask an administrator.")
        return ProductError("right_missing", sentence, status=403)
    return ProductError(
        "no_model", "No model is set up yet. An admin adds a provider and a model in the admin.", status=503
    )


def reminders_for(persona: Persona | None) -> list[str]:
    """The texts of the reminders that stand everywhere and of those the persona has chosen, oldest first."""
    mine = Q(scope=Reminder.Scope.EVERYWHERE)
    if persona is not None:
        mine |= Q(scope=Reminder.Scope.PERSONA, personas=persona)
    return list(Reminder.objects.filter(mine, enabled=True).distinct().values_list("text", flat=True))
