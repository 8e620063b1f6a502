"""Three SQL statements between a question and its first token. Each is one trip to the database; the ORM needs several.

1. `store_turns`: a send stores its messages, its turns and its conversation. The ORM's own statements, sent as one.
2. `claim`: a worker claims a turn and reads the data for its run. The ORM would need an UPDATE and a SELECT.
3. `branch`: a prompt reads as many messages as it has room for. The ORM has no recursive queries.

Columns come from the models, so that a new field is read and written without a change here. Everything else that reads
and writes rows goes through the ORM (docs/decisions/0054-a-typed-claimed-turn.md).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db import connection, models
from django.db.backends.postgresql.base import Cursor as ClientCursor
from django.db.backends.postgresql.base import ServerBindingCursor
from django.db.models.sql import InsertQuery, UpdateQuery
from django.utils import timezone

from accounts.models import User
from chat.models.conversation import Conversation, Message, Turn, TurnScope, text_in
from chat.models.parts import MessagePart
from core.json_types import JsonObject
from llm.services import model_at
from personas.models import Persona

MAX_BOUND = 65_535  # values that the protocol allows in one statement

Row = TypeVar("Row", bound=models.Model)


@contextmanager
def executed(statement: str, values: Mapping[str, Any] | Sequence[Any]) -> Iterator[Any]:
    """Execute a statement and yield its cursor. The server binds the values, so it keeps the statement's plan.

    Django's own cursors bind the values on the client. So does this one if there are more than `MAX_BOUND`.
    """
    connection.ensure_connection()
    cursor_type: Any = ServerBindingCursor if len(values) <= MAX_BOUND else ClientCursor
    with connection._prepare_cursor(cursor_type(connection.connection)) as cursor:  # type: ignore[attr-defined]  # as `connection.cursor` does
        cursor.execute(statement, values)
        yield cursor


def store_turns(
    conversation: Conversation, messages: Sequence[Message], turns: Sequence[Turn], changed: Sequence[str]
) -> None:
    """Insert messages and turns, and update the `changed` fields of their conversation or insert a new one.

    The rows may refer to each other in any order: the database checks foreign keys when the transaction ends.
    """
    new = conversation._state.adding
    stored_messages, message_values = _insert(Message, messages)
    stored_turns, turn_values = _insert(Turn, turns)
    stored, values = _insert(Conversation, [conversation]) if new else _update(conversation, changed)
    statement = f"WITH messages AS ({stored_messages}), turns AS ({stored_turns}) {stored}"
    with executed(statement, [*message_values, *turn_values, *values]):
        pass
    for row in (*messages, *turns, conversation):
        row._state.adding = False
        row._state.db = connection.alias


def _insert(model: type[models.Model], rows: Sequence[models.Model]) -> tuple[str, tuple[Any, ...]]:
    """Return the ORM's INSERT statement for the rows and its values."""
    query = InsertQuery(model)
    query.insert_values(model._meta.concrete_fields, list(rows))
    [(statement, values)] = query.get_compiler(connection=connection).as_sql()
    return statement, tuple(values)


def _update(row: models.Model, changed: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
    """Return the ORM's UPDATE statement for the `changed` fields of a row and its values."""
    query = UpdateQuery(type(row))
    query.add_q(models.Q(pk=row.pk))
    query.add_update_values({name: getattr(row, name) for name in changed})
    statement, values = query.get_compiler(connection=connection).as_sql()
    return statement, tuple(values)


class DayMention(NamedTuple):
    """A task that the user has mentioned with @ on a day."""

    day: date
    code: str


class ChosenReminder(NamedTuple):
    """A reminder that applies everywhere, or in the prompts of these personas (ids)."""

    text: str
    everywhere: bool
    personas: frozenset[UUID]

    def applies_to(self, persona: Persona | None) -> bool:
        return self.everywhere or (persona is not None and persona.pk in self.personas)


class EarlierPrompt(NamedTuple):
    """The newest prompt that the conversation has sent to a model, as `chat.models.LastPrompt` stores it."""

    model_id: UUID
    prompt: JsonObject
    window_cap: int | None


@dataclass(frozen=True, slots=True)
class ClaimedTurn:
    """A turn that this worker has claimed, with the data for its run and its prompt.

    `turn` has its question and its conversation, which has its owner and persona. The turn's model is that of the
    workspace at `version`, None if it was removed.
    `leaf`: the parent of the answer: the question, or a later message with results of a calling program's own tools.
    `reminders`: the enabled reminders that apply everywhere, or that the conversation's or its project's persona has
    chosen; oldest first.
    `mentions`: those on the day of the question in UTC and on the days around it, since the user's own day may differ.
    `earlier_prompts`: the prompts to the turn's model and its fallback. `prompted`: whether any model has got a prompt.
    `has_summary`, `has_marks`, `has_tasks`: whether such rows exist. If not, the run skips the queries for them.
    `has_memory`: whether the owner has a profile, as everybody with facts does.
    `run_step`: the id of the run's step that asked the question, if any.
    `scope_above`: the scope of the turn of the answer above the question; empty without one.
    """

    turn: Turn
    leaf: Message
    version: UUID | None
    reminders: Sequence[ChosenReminder]
    mentions: Sequence[DayMention]
    earlier_prompts: Sequence[EarlierPrompt]
    prompted: bool
    has_summary: bool
    has_marks: bool
    has_tasks: bool
    has_memory: bool
    run_step: int | None
    scope_above: TurnScope


# The statement returns the columns of these rows in this order, and then the values of its subqueries.
_CLAIMED_ROWS: Mapping[str, type[models.Model]] = {
    "turn": Turn,
    "conversation": Conversation,
    "owner": User,
    "question": Message,
    "persona": Persona,
    "leaf": Message,
}
_CLAIM = """
WITH turn AS (
    UPDATE chat_turn SET status = 'running', attempt = attempt + 1, started = %(now)s, heartbeat = now()
    WHERE id = %(turn)s AND status = 'queued' RETURNING *
)
SELECT {columns},
    (SELECT to_jsonb(l) FROM (SELECT model.token_ratio, model.ratio_samples, model.reported_counts) l),
    (SELECT version FROM llm_workspaceversion),
    (SELECT COALESCE(jsonb_agg(jsonb_build_array(r.text, r.scope = 'everywhere', r.personas) ORDER BY r.created), '[]')
        FROM (SELECT r.*, ARRAY (SELECT c.persona_id FROM personas_persona_reminders c WHERE c.reminder_id = r.id
            AND c.persona_id IN (persona.id, project.persona_id)) personas FROM personas_reminder r WHERE r.enabled) r
        WHERE r.scope = 'everywhere' OR r.personas <> '{}'),
    (SELECT COALESCE(jsonb_agg(jsonb_build_array(m.day, m.code)), '[]')
        FROM chat_mention m WHERE m.user_id = owner.id AND m.day BETWEEN (question.created - interval '1 day')::date
            AND (question.created + interval '1 day')::date),
    (SELECT COALESCE(jsonb_agg(jsonb_build_array(p.model_id, p.prompt, p.window_cap)), '[]') FROM chat_lastprompt p
        WHERE p.conversation_id = conversation.id AND p.model_id IN (model.id, model.fallback_id)),
    EXISTS (SELECT FROM chat_lastprompt p WHERE p.conversation_id = conversation.id),
    EXISTS (SELECT FROM chat_summary s WHERE s.conversation_id = conversation.id AND s.withdrawn IS NULL),
    EXISTS (SELECT FROM chat_mark m WHERE m.conversation_id = conversation.id),
    EXISTS (SELECT FROM projects_task t WHERE t.owner_id = owner.id),
    EXISTS (SELECT FROM memory_profile p WHERE p.person_id = owner.id),
    (SELECT s.id FROM chat_runstep s WHERE s.turn_id = turn.id),
    (SELECT t.scope FROM chat_turn t WHERE t.answer_id = question.parent_id)
FROM turn
JOIN chat_conversation conversation ON conversation.id = turn.conversation_id
JOIN accounts_user owner ON owner.id = conversation.owner_id
JOIN chat_message question ON question.id = turn.user_message_id
JOIN chat_message answer ON answer.id = turn.answer_id
LEFT JOIN chat_message leaf ON leaf.id = answer.parent_id AND leaf.id <> question.id
LEFT JOIN personas_persona persona ON persona.id = conversation.persona_id
LEFT JOIN projects_project project ON project.id = conversation.project_id
LEFT JOIN llm_model model ON model.id = turn.model_id
"""


def claim(turn_id: UUID) -> ClaimedTurn | None:
    """Claim a queued turn and return it; None if it is no longer queued.

    The workspace is read at the time of the claim: a model that was removed since the send is None.
    """
    with executed(_claim_statement(), {"turn": turn_id, "now": timezone.now()}) as cursor:
        columns = cursor.fetchone()
    if columns is None:
        return None
    values = iter(columns)
    turn = _read(Turn, values)
    conversation = _read(Conversation, values)
    owner = _read(User, values)
    question = _read(Message, values)
    persona = _read(Persona, values)
    leaf = _read(Message, values)
    learnt, version, reminders, mentions, prompts, prompted, summary, marks, tasks, memory, run_step, scope = values
    conversation.owner = owner
    conversation.persona = persona if persona.pk is not None else None
    turn.conversation = conversation
    turn.user_message = question
    turn.model = model_at(version, turn.model_id, json.loads(learnt)) if turn.model_id is not None else None
    return ClaimedTurn(
        turn=turn,
        leaf=leaf if leaf.pk is not None else question,
        version=version,
        reminders=[
            ChosenReminder(text, everywhere, frozenset(map(UUID, personas)))
            for text, everywhere, personas in json.loads(reminders)
        ],
        mentions=[DayMention(date.fromisoformat(day), code) for day, code in json.loads(mentions)],
        earlier_prompts=[EarlierPrompt(UUID(model), prompt, cap) for model, prompt, cap in json.loads(prompts)],
        prompted=prompted,
        has_summary=summary,
        has_marks=marks,
        has_tasks=tasks,
        has_memory=memory,
        run_step=run_step,
        scope_above=json.loads(scope or "{}"),
    )


@cache
def _claim_statement() -> str:
    names = [
        f'{name}."{field.column}"' for name, model in _CLAIMED_ROWS.items() for field in model._meta.concrete_fields
    ]
    return _CLAIM.replace("{columns}", ", ".join(names))


def _read(model: type[Row], values: Iterator[Any]) -> Row:
    """Build a row from the next columns of `claim`."""
    names, converters = _fields_of(model)
    columns = list(islice(values, len(names)))
    for place, convert in converters:
        columns[place] = convert(columns[place], None, connection)
    return model.from_db(connection.alias, names, columns)


@cache
def _fields_of(model: type[models.Model]) -> tuple[list[str], list[tuple[int, Callable[..., Any]]]]:
    """Return the names of a model's fields, and the positions of fields with their converters of database values."""
    fields = list(enumerate(model._meta.concrete_fields))
    converters = [(place, convert) for place, field in fields for convert in field.get_db_converters(connection)]
    return [field.attname for _, field in fields], converters


# Walks up the branch until the tokens exceed the room, and stops at the question of that turn. The engine needs whole
# turns and one turn that does not fit, which shows that it has seen enough. A row without a stored count counts as 0
# tokens, so it is read rather than missed; its count is then stored for the next time. Excluded messages count as 0,
# too. A summary's last message ends the walk. The `older` messages above that end are also read. The LIMIT tells the
# query planner that there is one parent. Otherwise it expects more, and reads a small table whole for every step.
_BRANCH = """
WITH RECURSIVE branch AS (
    SELECT {columns}, CASE WHEN m.id = ANY(%(excluded)s)
        THEN 0 ELSE COALESCE((m.tokens #>> %(path)s)::int, 0) END AS read
    FROM chat_message m
    WHERE m.id = %(leaf)s AND m.id IS DISTINCT FROM %(covered)s
    UNION ALL
    SELECT {columns}, b.read + CASE WHEN m.role = 'user' AND b.error_code = ANY(%(unsent)s) AND b.parts = '[]'::jsonb
        OR m.id = ANY(%(excluded)s) THEN 0 ELSE COALESCE((m.tokens #>> %(path)s)::int, 0) END
    FROM branch b CROSS JOIN LATERAL (SELECT * FROM chat_message WHERE id = b.parent_id LIMIT 1) m
    WHERE (b.read <= %(room)s OR b.role <> 'user') AND m.id IS DISTINCT FROM %(covered)s
), message AS (
    SELECT * FROM branch
    UNION ALL
    SELECT {columns}, 0 FROM chat_message m
    WHERE m.id = ANY(%(older)s) AND m.depth < COALESCE((SELECT min(depth) FROM branch), 2147483647)
)
SELECT id, role, parts, tokens, status, error_code, depth,
    role = 'user' AND EXISTS (SELECT FROM chat_attachment a WHERE a.message_id = message.id)
FROM message ORDER BY depth
""".replace("{columns}", "m.id, m.parent_id, m.role, m.parts, m.tokens, m.status, m.error_code, m.depth")


class BranchMessage(NamedTuple):
    """A message as a prompt needs it: fields of a `Message`, and whether files were uploaded with it.

    Reading a thousand of these takes as long as reading a hundred rows of the ORM.
    """

    pk: UUID
    role: str
    parts: list[MessagePart]
    tokens: dict[str, Any]
    status: str
    error_code: str
    depth: int
    has_files: bool

    @property
    def text(self) -> str:
        return text_in(self.parts)


def branch(
    *,
    leaf: UUID,
    covered: UUID | None,
    room: int,
    path: Sequence[str],
    unsent: Sequence[str],
    excluded: Sequence[UUID],
    older: Sequence[UUID],
) -> list[BranchMessage]:
    """Return the messages that a prompt may need, oldest first.

    `leaf`: the newest message. `covered`: the last message of a summary, None without one. `room` in tokens.
    `path`: the keys to a message's count in its `tokens`. `unsent`: error codes of answers whose question was never
    sent. `excluded`: messages that the user leaves out. `older`: messages to read even if the walk ends below them.
    """
    values = {
        "leaf": leaf,
        "covered": covered,
        "room": room,
        "path": list(path),
        "unsent": list(unsent),
        "excluded": list(excluded),
        "older": list(older),
    }
    with executed(_BRANCH, values) as cursor:
        return [
            BranchMessage(pk, role, json.loads(parts), json.loads(tokens), *others)
            for pk, role, parts, tokens, *others in cursor.fetchall()
        ]
