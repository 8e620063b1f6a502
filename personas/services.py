"""Change personas, prompt versions, reminders and budget profiles. `Rules` holds the settings for all prompts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple, TypeVar, cast
from uuid import UUID

from django.db import transaction
from django.db.models import Max, Q
from django.utils import timezone

from accounts.access.holds import require_free, require_rewritable
from accounts.access.rights import models_of, require
from accounts.models import Right, User
from core.audit.services import field_changes, load_stored, record, record_saved
from core.errors import ProductError
from core.faces import FaceFields
from core.locks import lock
from core.permissions import has_right, require_right, require_store
from core.requests import get_or_404
from core.rows import set_fields
from core.sentences import Sentence
from core.text import unix_lines
from llm import tokens
from llm.models import Model
from personas.handing_over import require_hand_over
from personas.models import BudgetProfile, Persona, PromptText, PromptVersion, Reminder, SystemPrompt
from personas.sharing.names import NAMES_LOCK, require_free_name, unique_name
from personas.sharing.roles import require_editor, require_owner
from personas.texts import BUILT_IN, TEXTS, Texts, TextVersion, check_text
from personas.variables import check_variables
from workspace.models import Workspace
from workspace.models.version import VersionedCache

Version = TypeVar("Version", bound=PromptVersion)

# Name of the lock that keeps two changes from activating two rows.
ACTIVATION_LOCK = "active prompts and default profile"
NO_VERSION = "0"  # the entity tag of a prompt without an active version
# Fields that are not copied when a persona is duplicated.
UNCOPIED_FIELDS = {"id", "owner", "name", "visibility", "version", "tokens", "created", "updated"}


class PersonaFields(FaceFields, total=False):
    """Fields of a persona that a form or a serializer has validated."""

    name: str
    description: str
    instructions: str
    replaces_system_prompt: bool
    model: Model | None
    effort: str
    budget_profile: BudgetProfile | None
    tools: list[str]
    date_awareness: str
    memory: bool
    starter_messages: list[str]
    visibility: str
    owner: User


def token_counts(text: str) -> dict[str, int]:
    """Return the value of the column `tokens` for a text: its count by the catch-all tokenizer.

    All versions use the same tokenizer, so that their counts can be compared.
    """
    return {tokens.CATCH_ALL: tokens.count(text)}


def changed_meanwhile_error(what: Sentence) -> ProductError:
    """Return the error `changed_meanwhile` (412) for a change that is based on an old state of `what`."""
    return ProductError(
        "changed_meanwhile",
        Sentence(
            "Somebody else changed {what} after you read it, and your version lacks that change. Read it again, "
            "put both together, and save again.",
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
    """Store the text as the next version of its kind, and activate it unless `activate` is false.

    `based_on`: entity tags; the active version must have one of them. Raises `changed_meanwhile` (412), `empty_prompt`
    and `variable_unknown`.
    """
    require_right(user, "add", kind)
    if not text.strip():
        name = str(kind._meta.verbose_name)
        sentence = Sentence("The {name} is empty. Write a text, or activate an earlier version.", name=name)
        raise ProductError("empty_prompt", sentence)
    if kind is SystemPrompt:
        check_variables(text)
    return _add_version(user, kind(text=unix_lines(text), note=note), activate=activate, based_on=based_on)


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
    """Store the next version of a text of `personas.texts.TEXTS`, as `save_prompt` does.

    Raises `changed_meanwhile` (412) and the errors of `check_text`.
    """
    require_right(user, "add", PromptText)
    row = PromptText(name=name, text=check_text(name, text), note=note)
    return _add_version(user, row, activate=activate, based_on=based_on)


def _add_version(user: User | None, prompt: Version, *, activate: bool, based_on: Collection[str] | None) -> Version:
    lock(ACTIVATION_LOCK)
    _require_current_tag(prompt, based_on)
    prompt.version = 1 + (prompt.history().aggregate(newest=Max("version"))["newest"] or 0)
    prompt.author = user
    prompt.tokens = token_counts(prompt.text)
    prompt.save(force_insert=True)
    _record_prompt(user, "added", prompt)
    if activate:
        activate_prompt(user=user, prompt=prompt)
    return prompt


@transaction.atomic
def activate_prompt(
    *, user: User | None = None, prompt: PromptVersion, based_on: Collection[str] | None = None
) -> None:
    """Activate a version, which may be an earlier one. `based_on` as in `save_prompt`."""
    require_right(user, "change", prompt)
    lock(ACTIVATION_LOCK)
    _require_current_tag(prompt, based_on)
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
    """Deactivate all versions of a text, so that the built-in text is sent. `based_on` as in `save_prompt`."""
    require_right(user, "change", PromptText)
    lock(ACTIVATION_LOCK)
    text = PromptText(name=name)
    _require_current_tag(text, based_on)
    before = text.history().filter(active=True).first()
    if before is not None:
        text.history().filter(active=True).update(active=False)
        changes = {"version": [before.version, 0]}
        record(user=user, action="prompt_text.built_in_activated", row=before, name=name, changes=changes)


def _require_current_tag(prompt: PromptVersion, based_on: Collection[str] | None) -> None:
    active = prompt.history().filter(active=True).first()
    if based_on is not None and (active.tag if active else NO_VERSION) not in based_on:
        raise changed_meanwhile_error(Sentence("the {verbose_name}", verbose_name=str(prompt._meta.verbose_name)))


@transaction.atomic
def save_profile(*, user: User, profile: BudgetProfile, default: bool = False) -> None:
    """Store a profile that the caller has validated; `default` makes it the default."""
    require_store(user, profile)
    before = load_stored(profile)
    profile.save()
    record_saved(user=user, kind="budget_profile", row=profile, before=before, name=profile.name)
    if default:
        set_default_profile(user=user, profile=profile)


@transaction.atomic
def set_default_profile(*, user: User | None = None, profile: BudgetProfile) -> None:
    require_right(user, "change", profile)
    lock(ACTIVATION_LOCK)
    BudgetProfile.objects.filter(default=True).exclude(pk=profile.pk).update(default=False)
    BudgetProfile.objects.filter(pk=profile.pk).update(default=True)
    profile.default = True
    record(user=user, action="budget_profile.made_default", row=profile, name=profile.name)


@transaction.atomic
def delete_profile(*, user: User, profile: BudgetProfile) -> None:
    """Delete a profile. Its personas then use the default profile, which cannot be deleted: `default_profile` (409)."""
    require_right(user, "delete", profile)
    lock(ACTIVATION_LOCK)
    if BudgetProfile.objects.filter(pk=profile.pk, default=True).exists():
        raise ProductError(
            "default_profile",
            "This is the default profile. Make another profile the default first, then delete this one.",
            status=409,
        )
    record(user=user, action="budget_profile.deleted", row=profile, name=profile.name)
    profile.delete()


class Rules(NamedTuple):
    """Settings of administrators for all prompts: system prompt, budget profiles, texts, and the workspace."""

    system_prompt: SystemPrompt | None
    profiles: Mapping[UUID, BudgetProfile]
    texts: Texts
    workspace: Workspace

    def profile_for(self, persona: Persona | None) -> BudgetProfile:
        """Return the profile of the persona, else the default profile. If none exists, use the documented defaults."""
        chosen = self.profiles.get(persona.budget_profile_id) if persona and persona.budget_profile_id else None
        default = (each for each in self.profiles.values() if each.default)
        return copy(chosen or next(default, None) or BudgetProfile(name="default"))


def _read_rules() -> Rules:
    return Rules(
        system_prompt=SystemPrompt.objects.filter(active=True).first(),
        profiles=BudgetProfile.objects.in_bulk(),
        texts=active_texts(PromptText.objects.filter(active=True)),
        workspace=Workspace.objects.first() or Workspace(),
    )


def active_texts(rows: Iterable[PromptText]) -> Texts:
    """Return the texts with these active versions. Ignores rows whose name is not in `TEXTS`."""
    return Texts({row.name: TextVersion(row.version, row.text) for row in rows if row.name in TEXTS})


def texts_from_report(versions: Mapping[str, str]) -> Texts:
    """Return the texts of a past prompt, from the versions in its report. Texts without a version were built-in."""
    lookups = [Q(name=name, version=number) for name, number in versions.items() if name in TEXTS]
    return active_texts(PromptText.objects.filter(reduce(or_, lookups))) if lookups else BUILT_IN


_rules_cache = VersionedCache(_read_rules)


def rules_at(version: UUID | None = None) -> Rules:
    """Return the rules at this version of the workspace or a later one; without a version, the current rules."""
    return _rules_cache.get(version)


def default_profile() -> BudgetProfile:
    """Return the profile for personas without one. If no profile exists, use the documented defaults."""
    return BudgetProfile.objects.filter(default=True).first() or BudgetProfile(name="default")


@transaction.atomic
def create_persona(*, user: User, fields: PersonaFields, reminder: str = "", owner: User | None = None) -> Persona:
    """Create a persona with its own `reminder`. An administrator may create one for another `owner`.

    The caller has validated `fields`. Raises `name_taken` (409), `right_missing` (403) and `variable_unknown`.
    """
    persona = Persona(owner=owner or user)
    set_fields(persona, fields)
    if persona.owner != user:
        require_right(user, "add", persona)
    require_publish_right(user, persona)
    lock(NAMES_LOCK)
    require_free_name(persona)
    persona.instructions = unix_lines(persona.instructions)
    check_variables(persona.instructions)
    persona.tokens = token_counts(persona.instructions)
    persona.save()
    _replace_own_reminder(persona, reminder)
    _record_persona(user, Persona(), persona)
    return persona


def require_publish_right(user: User, persona: Persona) -> None:
    """Raise `right_missing` (403) if the persona is visible to others and the user may not publish personas.

    Administrators with the right to change personas need no group that may publish.
    """
    if persona.visibility != Persona.Visibility.PRIVATE and not has_right(user, "change", persona):
        require(user, Right.PUBLISH_PERSONAS)


def _record_persona(user: User, before: Persona, after: Persona) -> None:
    """Record the change in the audit log. A change of visibility decides the action's name, since it affects others."""
    changes = field_changes(before, after)
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
    fields: PersonaFields,
    reminder: str | None = None,
    based_on: Collection[str] | None = None,
) -> Persona:
    """Change a persona and return it as stored. The version rises only if a field or the reminder changes.

    `based_on`: entity tags; the stored persona must have one of them, else `changed_meanwhile` (412). Raises
    `not_owner` and `right_missing` (403), `variable_unknown`, `name_taken` (409), `legal_hold` (409) if a text would be
    lost, and for a new owner the errors of `require_hand_over`.
    """
    locked = _lock_persona(user, persona, based_on)
    before = copy(locked)
    values = fields.copy()
    if "instructions" in values:
        values["instructions"] = unix_lines(values["instructions"])
    changed_values = {name: value for name, value in values.items() if getattr(locked, name) != value}
    changes = cast("PersonaFields", changed_values)
    check_variables(changes.get("instructions", ""))
    require_rewritable(locked, before.name, values.get("name", before.name))
    require_rewritable(locked, before.description, values.get("description", before.description))
    require_rewritable(locked, before.instructions, values.get("instructions", before.instructions))
    if reminder is not None and unix_lines(reminder).strip() != locked.own_reminder:
        require_rewritable(locked, locked.own_reminder, unix_lines(reminder).strip())
        _replace_own_reminder(locked, reminder)
    elif not changes:
        return locked
    if "owner" in changes:
        require_hand_over(user, locked, changes["owner"])
    if "visibility" in changes:
        require_owner(user=user, persona=locked)
    set_fields(locked, changes)
    if "visibility" in changes:
        require_publish_right(user, locked)
    require_free_name(locked, before)
    locked.tokens = token_counts(locked.instructions)
    locked.version += 1
    locked.save()
    _record_persona(user, before, locked)
    return locked


@transaction.atomic
def record_opening(*, user: User, persona: Persona) -> None:
    """Record that an administrator opened a persona that is not visible to them as a user."""
    record(user=user, action="persona.opened", row=persona)


def duplicate_persona(*, user: User, persona: Persona) -> Persona:
    """Create a private copy of a persona, with version 1. Its own reminders become one reminder.

    The caller has checked that the user can see the persona.
    """
    names = [field.name for field in Persona._meta.concrete_fields if field.name not in UNCOPIED_FIELDS]
    fields = cast("PersonaFields", {name: getattr(persona, name) for name in names})
    fields["name"] = unique_name(f"Copy of {persona.name}", user)
    return create_persona(user=user, fields=fields, reminder=persona.own_reminder)


def set_reminders(*, user: User, persona: Persona, reminders: Iterable[Reminder]) -> None:
    """Set the shared reminders that the persona uses."""
    require_editor(user=user, persona=persona)
    persona.reminders.set(reminders)
    Persona.objects.filter(pk=persona.pk).update(updated=timezone.now())


def save_reminder(*, user: User, reminder: Reminder, persona: Persona | None = None) -> None:
    """Store a reminder that the caller has validated. `persona`: the persona to which a new reminder is added.

    Raises the errors of `require_reminder_right`.
    """
    require_reminder_right(user=user, reminder=reminder, persona=persona)
    reminder.text = unix_lines(reminder.text)
    with transaction.atomic():
        before = load_stored(reminder)
        if before is not None:
            require_rewritable(reminder, before.text, reminder.text)
        reminder.save()
        record_saved(user=user, kind="reminder", row=reminder, before=before)
        if persona is not None:
            persona.reminders.add(reminder)
        reminder.personas.update(updated=timezone.now())


@transaction.atomic
def delete_reminder(*, user: User, reminder: Reminder) -> None:
    require_reminder_right(user=user, reminder=reminder)
    require_free(reminder)
    reminder.personas.update(updated=timezone.now())
    record(user=user, action="reminder.deleted", row=reminder)
    reminder.delete()


def require_reminder_right(*, user: User, reminder: Reminder, persona: Persona | None = None) -> None:
    """Check that the user may change the reminder, and may add it to `persona`.

    Only administrators may change a reminder for every conversation. For other reminders, the user must be an editor of
    each persona that uses it.
    """
    personas = [*reminder.personas.all(), *([persona] if persona else ())]
    if reminder.scope == Reminder.Scope.EVERYWHERE or not personas:
        require_store(user, reminder)
    for persona in personas:
        require_editor(user=user, persona=persona)


@transaction.atomic
def delete_persona(*, user: User, persona: Persona, based_on: Collection[str] | None = None) -> None:
    """Delete a persona and the reminders that no other persona uses. Conversations and projects continue without it.

    Raises `changed_meanwhile` (412), `not_owner` (403) and `legal_hold` (409).
    """
    locked = _lock_persona(user, persona, based_on)
    require_owner(user=user, persona=locked)
    require_free(locked)
    record(user=user, action="persona.deleted", row=locked)
    reminders = [reminder.pk for reminder in locked.reminders.filter(scope=Reminder.Scope.PERSONA)]
    locked.delete()
    Reminder.objects.filter(pk__in=reminders, personas=None).delete()


def delete_reminders_of_user(person: User) -> None:
    """Delete the reminders that only this user's personas have. Call it before the user's personas are deleted."""
    others = Reminder.objects.filter(personas__in=Persona.objects.exclude(owner=person))
    own = Reminder.objects.filter(scope=Reminder.Scope.PERSONA, personas__owner=person)
    Reminder.objects.filter(pk__in=own.values("pk")).exclude(pk__in=others.values("pk")).delete()


def _lock_persona(user: User, persona: Persona, based_on: Collection[str] | None) -> Persona:
    """Return the stored row, locked until the end of the transaction.

    Raises `NotFound`, `not_owner` (403) and `changed_meanwhile` (412).
    """
    locked = get_or_404(Persona.objects.select_for_update(), persona.pk, "persona")
    require_editor(user=user, persona=locked)
    if based_on is not None and locked.tag not in based_on:
        raise changed_meanwhile_error(Sentence("this persona"))
    return locked


def _replace_own_reminder(persona: Persona, text: str) -> None:
    """Replace the persona's own reminder. A reminder that other personas use too is kept for them.

    A disabled reminder is not replaced, since it was not in the text that the user edited.
    """
    before = list(persona.reminders.filter(scope=Reminder.Scope.PERSONA, enabled=True))
    persona.reminders.remove(*before)
    Reminder.objects.filter(pk__in=[reminder.pk for reminder in before], personas=None).delete()
    text = unix_lines(text).strip()
    if text:
        persona.reminders.add(Reminder.objects.create(text=text, scope=Reminder.Scope.PERSONA))


def model_for(persona: Persona | None, user: User | None) -> Model:
    """Return the persona's model if the user may use it, else the default model, else the oldest one.

    None as `user` stands for the workspace, which may use all models. Raises the error of `no_model_error`.
    """
    usable = models_of(user) if user is not None else Model.objects.usable()
    if persona is not None and persona.model_id is not None:
        chosen = usable.filter(pk=persona.model_id).first()
        if chosen is not None:
            return chosen
    model = usable.order_by("-default", "created").first()
    if model is None:
        raise no_model_error()
    return model


@dataclass(frozen=True, slots=True)
class TextSize:
    """The size of a text in tokens. `exact`: the model's tokenizer is known. `model` is None if no model is usable."""

    tokens: int
    exact: bool = False
    model: Model | None = None


def measure_text(text: str, model: Model | None = None, *, user: User | None = None) -> TextSize:
    """Return the size of a text for `model`, by default for the model that the user would get."""
    try:
        counted_model = model_for(Persona(model=model), user)
    except ProductError:
        return TextSize(tokens.count(text.strip()))
    size = tokens.count(text.strip(), counted_model.tokenizer or tokens.CATCH_ALL)
    return TextSize(size, exact=bool(counted_model.tokenizer), model=counted_model)


def select_model(usable: Sequence[Model], persona: Persona | None) -> Model:
    """Return the persona's model if it is in `usable`, else the first. `usable` must have the default model first.

    Raises the error of `no_model_error`.
    """
    chosen = (model for model in usable if persona is not None and model.pk == persona.model_id)
    model = next(chosen, None) or next(iter(usable), None)
    if model is None:
        raise no_model_error()
    return model


def no_model_error() -> ProductError:
    """Return the error `no_model` (503) if no model is set up, else `right_missing` (403)."""
    if Model.objects.usable().exists():
        sentence = Sentence("None of your groups may use a model. Ask an administrator.")
        return ProductError("right_missing", sentence, status=403)
    return ProductError(
        "no_model", "No model is set up yet. An administrator must add a provider and a model in the admin.", status=503
    )


def reminder_texts(persona: Persona | None) -> list[str]:
    """Return the texts of the reminders for every conversation and of the persona's reminders, oldest first."""
    applies = Q(scope=Reminder.Scope.EVERYWHERE)
    if persona is not None:
        applies |= Q(scope=Reminder.Scope.PERSONA, personas=persona)
    return list(Reminder.objects.filter(applies, enabled=True).distinct().values_list("text", flat=True))
