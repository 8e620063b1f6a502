"""Name the parts of the answer above that the next prompt lacks, because they were deleted or are no longer shared.

A persona or project that the person has removed from the conversation is not gone: that was a choice. The scope of the
answer above (`chat.models.conversation.TurnScope`) has the names, since the rows may be deleted.
"""

from typing import NamedTuple

from accounts.access.rights import cached_models_of
from chat.context.build import SourceEntry
from chat.context.types import Reason
from chat.models.conversation import NamedRow
from chat.prompts.turn_context import TurnContext
from core.sentences import Sentence
from personas.models import Persona
from projects.models import Project


class GoneParts(NamedTuple):
    """Sources that are left out since they are gone, and a note on the model of the answer above if it is gone."""

    sources: tuple[SourceEntry, ...] = ()
    notes: tuple[Sentence, ...] = ()


def gone_parts(context: TurnContext) -> GoneParts:
    """Return the parts of the answer above that are gone. Makes queries only for parts that the prompt lacks."""
    above = context.scope_above
    reasons = {
        "persona": _reason_against_persona(context, above.get("persona")),
        "project": _reason_against_project(context, above.get("project")),
    }
    rows = {"persona": above.get("persona"), "project": above.get("project")}
    sources = [_source(kind, row, reason) for kind, row in rows.items() if row and (reason := reasons[kind])]
    return GoneParts(tuple(sources), _model_notes(context, above.get("model")))


def _reason_against_persona(context: TurnContext, above: NamedRow | None) -> Reason | None:
    """Return the reason why the persona above does not apply; None if it applies, or if the person chose otherwise."""
    conversation = context.conversation
    if above is None or conversation is None or (context.persona and str(context.persona.pk) == above["id"]):
        return None
    if conversation.persona_id is not None and str(conversation.persona_id) != above["id"]:
        return None
    if not Persona.objects.filter(pk=above["id"]).exists():
        return "deleted_persona"
    is_visible = Persona.objects.visible_to(context.user).filter(pk=above["id"]).exists()
    return None if is_visible else "lost_persona"


def _reason_against_project(context: TurnContext, above: NamedRow | None) -> Reason | None:
    """Return the reason why the project above does not apply, as `_reason_against_persona` does."""
    conversation = context.conversation
    if above is None or conversation is None or context.project is not None:
        return None
    if str(conversation.project_id) == above["id"]:
        return "lost_project"
    is_deleted = conversation.project_id is None and not Project.objects.filter(pk=above["id"]).exists()
    return "deleted_project" if is_deleted else None


def _model_notes(context: TurnContext, above: NamedRow | None) -> tuple[Sentence, ...]:
    """Return a note if the model above cannot be asked any more: it was removed, or the person may not use it."""
    if above is None or str(context.model.pk) == above["id"]:
        return ()
    if any(str(model.pk) == above["id"] for model in cached_models_of(context.user)):
        return ()
    return (
        Sentence(
            "{gone} answered before and is no longer available, so {model} answers.",
            gone=above["name"],
            model=context.model.name,
        ),
    )


def _source(kind: str, row: NamedRow, reason: Reason) -> SourceEntry:
    return SourceEntry(
        kind=kind, id=row["id"], title=row["name"], state="left_out", reason=reason, tokens=0, exact=True
    )
