"""Compute fingerprints of the rows that an import has made, so that an undo keeps the rows that a person has changed.

A fingerprint is stored in the journal with its row (`ImportedRow.fingerprint`). It covers the columns that a person
edits. It leaves out columns that change without a person's edit, such as the branch on show.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Model, QuerySet

from chat.memory.models import Fact
from chat.models import Conversation, ImportedRow
from personas.models import Persona
from projects.models import Project
from projects.planner.models.task import Task
from projects.saved_prompts.models import SavedPrompt


@dataclass(frozen=True, slots=True)
class EditedColumns:
    """The columns of a table that a person edits."""

    model: type[Model]
    names: tuple[str, ...]


_COLUMNS = {
    ImportedRow.Kind.CONVERSATION: EditedColumns(
        Conversation,
        ("title", "project", "persona", "pinned", "tasks_in_prompts", "memory_in_prompts", "tag_names"),
    ),
    ImportedRow.Kind.PERSONA: EditedColumns(Persona, ("version",)),  # each change makes a version
    ImportedRow.Kind.PROJECT: EditedColumns(Project, ("name", "instructions", "web", "persona", "icon", "colour")),
    ImportedRow.Kind.PROMPT: EditedColumns(SavedPrompt, ("name", "text")),
    ImportedRow.Kind.FACT: EditedColumns(Fact, ("text", "pinned")),
    ImportedRow.Kind.TASK: EditedColumns(Task, ("title", "notes", "status", "date", "archetype")),
}


def fingerprints(kind: ImportedRow.Kind, rows: Iterable[UUID]) -> dict[UUID, str]:
    """Return the fingerprints of these rows by id. Files have none, since nobody edits them."""
    columns = _COLUMNS.get(kind)
    if columns is None:
        return {}
    stored: QuerySet[Model] = columns.model._default_manager.filter(pk__in=list(rows))
    if "tag_names" in columns.names:
        stored = stored.annotate(tag_names=ArrayAgg("tags__name", order_by="tags__name", default=[]))
    return {pk: _digest(values) for pk, *values in stored.values_list("pk", *columns.names)}


def _digest(values: list[object]) -> str:
    return hashlib.sha256(json.dumps(values, default=str).encode()).hexdigest()
