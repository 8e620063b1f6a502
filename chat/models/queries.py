"""The statements that every turn runs through, each one trip to the database: written out, since Django would put them
together anew for every turn, which takes longer than they do.

Columns come from the models, so that a new field is read and written without a change here.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import groupby, islice
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db import connection, models
from django.db.backends.postgresql.base import Cursor as ClientCursor
from django.db.backends.postgresql.base import ServerBindingCursor
from django.utils import timezone

from accounts.models import User
from chat.models.conversation import Conversation, Message, Turn, text_in
from llm.services import model_at
from personas.models import Persona
from projects.planner.models.run import Run

MOST_BOUND = 65_535  # values of one statement

Row = TypeVar("Row", bound=models.Model)

# The conversation first, then its person's line: everybody who takes both takes them in this order.
_LOCK = """
WITH conversation AS (
    SELECT * FROM chat_conversation WHERE id = %(conversation)s AND deleted IS NULL FOR UPDATE
)
SELECT {columns}, pg_advisory_xact_lock(hashtextextended('turns:' || conversation.owner_id, 0)) FROM conversation
"""


def lock(conversation_id: UUID) -> Conversation | None:
    """The row, locked until the transaction ends, and with it whatever else this person is about to begin.

    What is read after it has seen everything that those before it have done.
    """
    with executed(_statement(_LOCK, conversation=Conversation), {"conversation": conversation_id}) as cursor:
        found = cursor.fetchone()
    return _read(Conversation, iter(found)) if found is not None else None


def join_line(owner_id: object) -> None:
    """As `lock` for somebody whose conversation is new, so that nobody else can begin anything in it."""
    with executed("SELECT pg_advisory_xact_lock(hashtextextended('turns:' || %s::text, 0))", [str(owner_id)]):
        pass


class Standing(NamedTuple):
    """Whether an answer, a summary or a run is under way in a conversation; how many answers of its person are being
    written; the depth of its leaf; the version of the workspace (`workspace.models.version`); whether its persona is
    somebody else's and not everybody's; the tokens of its newest prompt that has a count, whose messages the next one
    has too."""

    answering: bool
    summarising: bool
    running: bool
    live: int
    leaf_depth: int | None
    version: UUID | None
    borrows: bool
    sent_before: int


_STANDING = """
SELECT
    EXISTS (SELECT FROM chat_turn t WHERE t.conversation_id = %(conversation)s AND t.status IN ('queued', 'running')),
    EXISTS (SELECT FROM chat_summaryjob j
        WHERE j.conversation_id = %(conversation)s AND j.status IN ('queued', 'running')),
    EXISTS (SELECT FROM chat_run r WHERE r.conversation_id = %(conversation)s AND r.status = ANY(%(unfinished)s)),
    (SELECT count(*) FROM chat_turn t JOIN chat_conversation c ON c.id = t.conversation_id
        WHERE c.owner_id = %(owner)s AND t.status IN ('queued', 'running')),
    (SELECT m.depth FROM chat_message m WHERE m.id = %(leaf)s),
    (SELECT version FROM llm_workspaceversion),
    EXISTS (SELECT FROM personas_persona p WHERE p.id = %(persona)s AND p.visibility = 'private'
        AND p.owner_id IS DISTINCT FROM %(owner)s),
    COALESCE((SELECT t.context_used FROM chat_turn t
        WHERE t.conversation_id = %(conversation)s AND t.context_used IS NOT NULL ORDER BY t.id DESC LIMIT 1), 0)
"""


def standing(conversation: Conversation) -> Standing:
    """All that decides whether something may begin, in one statement: after `lock`, since its own snapshot is older."""
    bound = {"conversation": conversation.pk, "owner": conversation.owner_id, "leaf": conversation.leaf_id}
    bound["persona"] = conversation.persona_id
    unfinished = [str(status) for status in Run.UNFINISHED]
    with executed(_STANDING, {**bound, "unfinished": unfinished}) as cursor:
        return Standing(*cursor.fetchone())


def store(rows: Sequence[models.Model], conversation: Conversation, changed: Sequence[str]) -> None:
    """Inserts the rows, and stores these fields of their conversation or inserts that, too, in one statement.

    What refers to one another may come in any order: the database looks at that when the transaction ends.
    """
    new = conversation._state.adding
    rows = [conversation, *rows] if new else rows
    inserts = [insert_statement(list(some)) for _, some in groupby(rows, type)]
    parts = ", ".join(f"stored_{number} AS ({statement})" for number, (statement, _) in enumerate(inserts))
    last, bound = ("SELECT", []) if new else _update(conversation, changed)
    with executed(f"WITH {parts} {last}", [value for _, values in inserts for value in values] + bound):
        pass
    for row in rows:
        row._state.adding, row._state.db = False, connection.alias


def insert_statement(rows: Sequence[models.Model]) -> tuple[str, list[Any]]:
    """Of one kind; the statement and what is bound to it. The database gives a number to rows without an id."""
    kind, numbered = rows[0]._meta, rows[0].pk is None
    fields = [field for field in kind.concrete_fields if not (numbered and field.primary_key)]
    places = ", ".join([f"({', '.join(['%s'] * len(fields))})"] * len(rows))
    names = ", ".join(f'"{field.column}"' for field in fields)
    bound = [field.get_db_prep_save(field.pre_save(row, True), connection) for row in rows for field in fields]
    return f"INSERT INTO {kind.db_table} ({names}) VALUES {places}", bound  # noqa: S608 - our own models' names


def _update(row: models.Model, changed: Sequence[str]) -> tuple[str, list[Any]]:
    fields = [field for field in row._meta.concrete_fields if field.name in changed]
    changes, bound = _set(type(row), {field.name: getattr(row, field.attname) for field in fields})
    return f"UPDATE {row._meta.db_table} SET {changes} WHERE id = %s", [*bound, row.pk]  # noqa: S608 - as above


def _set(kind: type[models.Model], values: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """What stands after SET, and what is bound to it."""
    fields: list[Any] = [kind._meta.get_field(name) for name in values]
    changes = ", ".join(f'"{field.column}" = %s' for field in fields)
    return changes, [field.get_db_prep_save(values[field.name], connection) for field in fields]


# What the run and `chat.prompts.turn_context` go by, beside the rows. Whether a conversation has a summary or marks, so
# that nobody looks for them where it has none. A day is the user's, so mentions of the days around come with theirs.
_ALONG = {
    "has_summary": """EXISTS (SELECT FROM chat_summary s
        WHERE s.conversation_id = conversation.id AND s.withdrawn IS NULL)""",
    "has_marks": "EXISTS (SELECT FROM chat_mark m WHERE m.conversation_id = conversation.id)",
    "has_tasks": "EXISTS (SELECT FROM projects_task t WHERE t.owner_id = owner.id)",
    "mentions": """(SELECT COALESCE(jsonb_agg(jsonb_build_object('day', m.day, 'code', m.code)), '[]')
        FROM chat_mention m WHERE m.user_id = owner.id AND m.day BETWEEN (question.created - interval '1 day')::date
            AND (question.created + interval '1 day')::date)""",
    "prompts": """(SELECT COALESCE(jsonb_agg(jsonb_build_object(
            'model', p.model_id, 'prompt', p.prompt, 'window_cap', p.window_cap)), '[]')
        FROM chat_lastprompt p
        WHERE p.conversation_id = conversation.id AND p.model_id IN (model.id, model.fallback_id))""",
    "learnt": "(SELECT to_jsonb(l) FROM (SELECT model.token_ratio, model.ratio_samples, model.reported_counts) l)",
    "prompted": "EXISTS (SELECT FROM chat_lastprompt p WHERE p.conversation_id = conversation.id)",
    "run_step": "(SELECT s.id FROM chat_runstep s WHERE s.turn_id = turn.id)",
    "reminders": """ARRAY (SELECT r.text FROM personas_reminder r WHERE r.enabled AND (r.scope = 'everywhere' OR
        r.scope = 'persona' AND EXISTS (SELECT FROM personas_persona_reminders c
        WHERE c.reminder_id = r.id AND c.persona_id = persona.id)) ORDER BY r.created)""",
    "version": "(SELECT version FROM llm_workspaceversion)",
}
_AS_JSON = ("mentions", "prompts", "learnt")
_CLAIM = """
WITH turn AS (
    UPDATE chat_turn SET status = 'running', attempt = attempt + 1, started = %(now)s, heartbeat = now()
    WHERE id = %(turn)s AND status = 'queued' RETURNING *
)
SELECT {columns}, {along}
FROM turn
JOIN chat_conversation conversation ON conversation.id = turn.conversation_id
JOIN accounts_user owner ON owner.id = conversation.owner_id
JOIN chat_message question ON question.id = turn.user_message_id
JOIN chat_message answer ON answer.id = turn.answer_id
LEFT JOIN chat_message given ON given.id = answer.parent_id AND given.id <> question.id
LEFT JOIN personas_persona persona ON persona.id = conversation.persona_id
LEFT JOIN llm_model model ON model.id = turn.model_id
""".replace("{along}", ", ".join(_ALONG.values()))


def claim(turn_id: UUID) -> Turn | None:
    """The turn with what its run needs, now ours; None when it is not queued any more.

    `given` is the message that its answer stands below: the question, or what a program's own tools have said since.
    Its model and `version` are those of the workspace now; without a model where that was removed.
    """
    rows: dict[str, type[models.Model]] = {"turn": Turn, "conversation": Conversation, "owner": User}
    statement = _statement(_CLAIM, **rows, question=Message, persona=Persona, given=Message)
    with executed(statement, {"turn": turn_id, "now": timezone.now()}) as cursor:
        found = cursor.fetchone()
    if found is None:
        return None
    values = iter(found)
    turn, conversation = _read(Turn, values), _read(Conversation, values)
    owner, question, persona = _read(User, values), _read(Message, values), _read(Persona, values)
    given = _read(Message, values)
    conversation.owner, conversation.persona = owner, persona if persona.pk is not None else None
    turn.conversation, turn.user_message = conversation, question
    turn.given = given if given.pk is not None else question  # type: ignore[attr-defined]  # as an annotation is
    for name, value in zip(_ALONG, values, strict=True):
        setattr(turn, name, json.loads(value) if name in _AS_JSON else value)
    version, learnt = (getattr(turn, name) for name in ("version", "learnt"))
    turn.model = model_at(version, turn.model_id, learnt) if turn.model_id is not None else None
    return turn


# Walks up the branch and stops at the question whose turn makes the tokens read exceed the room: the engine wants whole
# turns, and one that does not fit, to know that it has seen enough. A row without a stored count weighs nothing here,
# so it is read rather than missed; its count is then stored for the next time. Nor does what is left out. A summary's
# last message ends the walk. What is wanted from above its end is read along. The limit says that there is one parent:
# the planner expects more, and then reads a small table whole for every step.
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
    """What a prompt is made of: fields of a `Message`, and whether files were uploaded with it. A thousand of these
    are read in the time of a hundred rows."""

    pk: UUID
    role: str
    parts: list[dict[str, Any]]
    tokens: dict[str, Any]
    status: str
    error_code: str
    depth: int
    has_files: bool

    @property
    def text(self) -> str:
        return text_in(self.parts)


def branch(bound: Mapping[str, Any]) -> list[BranchMessage]:
    """The messages that a prompt may need, oldest first.

    `leaf`, `covered`: ids of messages, the second the last of a summary or none; `older`, `excluded`: lists of ids;
    `room` in tokens; `path` to a message's count in its `tokens`; `unsent`: codes of errors.
    """
    with executed(_BRANCH, bound) as cursor:
        found = cursor.fetchall()
    if not found:
        return []
    ids, roles, parts, tokens, *others = zip(*found, strict=True)
    return list(map(BranchMessage, ids, roles, _parsed(parts), _parsed(tokens), *others))


def _parsed(texts: Sequence[str]) -> list[Any]:
    """All at once, which takes a fifth of the time."""
    return list(json.loads(f"[{','.join(texts)}]"))


def end(turn: Turn, values: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Gives the turn and its answer these values, unless somebody else has ended it: nobody carries it out any more."""
    (of_turn, bound), (of_answer, also_bound) = _set(Turn, values), _set(Message, answer)
    statement = f"""
        WITH ended AS (
            UPDATE chat_turn SET {of_turn}, attempt = attempt + 1
            WHERE id = %s AND attempt = %s AND status IN ('queued', 'running') RETURNING answer_id
        ), said AS (
            UPDATE chat_message SET {of_answer} FROM ended WHERE chat_message.id = ended.answer_id
        )
        SELECT FROM ended
    """  # noqa: S608 - our own models' names
    with executed(statement, [*bound, turn.pk, turn.attempt, *also_bound]) as cursor:
        return cursor.fetchone() is not None


# A worker that is killed takes nothing along that the database has said yes to. So that the first token does not wait
# for a disk, this commit does not: the machine of the database loses it if it fails within some 0.6 s.
_ASKED = """
UPDATE chat_turn SET asked = %s::jsonb FROM (SELECT set_config('synchronous_commit', 'off', true)) AS at_once
WHERE id = %s AND attempt = %s AND status = 'running'
"""


def note_asked(turn: Turn, asked: Sequence[Mapping[str, Any]]) -> bool:
    """Stores what the turn has asked of models so far; False where somebody else has ended it."""
    with executed(_ASKED, [json.dumps(asked), turn.pk, turn.attempt]) as cursor:
        return bool(cursor.rowcount)


_SETTLE = """
UPDATE chat_conversation SET updated = %(now)s, state = CASE WHEN EXISTS (
    SELECT FROM chat_summaryjob j WHERE j.conversation_id = %(conversation)s AND j.status IN ('queued', 'running')
) THEN 'summarising' ELSE 'idle' END
WHERE id = %(conversation)s AND NOT EXISTS (
    SELECT FROM chat_turn t WHERE t.conversation_id = %(conversation)s AND t.status IN ('queued', 'running')
)
RETURNING {columns}
"""


def settle(conversation_id: UUID) -> Conversation | None:
    """The conversation in the state of its summaries; None while it has an answer that is being written, or is gone.

    Call it with the row locked: its own snapshot must be younger than whatever else has ended here.
    """
    statement = _statement(_SETTLE, chat_conversation=Conversation)
    with executed(statement, {"conversation": conversation_id, "now": timezone.now()}) as cursor:
        found = cursor.fetchone()
    return _read(Conversation, iter(found)) if found is not None else None


class Following(NamedTuple):
    """What there may be to begin in a conversation in which something has ended; whoever begins it looks closer. A
    message that waits, a run, a summary, one of its person's drafts of checklists, its title, turns of its person that
    no worker has claimed, an answer on show that was interrupted."""

    message: bool
    run: bool
    summary: bool
    draft: bool
    title: bool
    line: bool
    interrupted: bool


_FOLLOWING = """
SELECT
    EXISTS (SELECT FROM chat_nextmessage n WHERE n.conversation_id = c.id),
    EXISTS (SELECT FROM chat_run r WHERE r.conversation_id = c.id),
    EXISTS (SELECT FROM chat_summaryjob j WHERE j.conversation_id = c.id AND j.status = 'queued'),
    EXISTS (SELECT FROM projects_task t WHERE t.owner_id = c.owner_id AND t.draft = 'due'),
    NOT c.titled,
    EXISTS (SELECT FROM chat_turn t JOIN chat_conversation o ON o.id = t.conversation_id
        WHERE o.owner_id = c.owner_id AND t.status = 'queued'),
    EXISTS (SELECT FROM chat_turn t WHERE t.answer_id = c.leaf_id AND t.status = 'interrupted')
FROM chat_conversation c WHERE c.id = %(conversation)s
"""


def following(conversation_id: UUID) -> Following:
    """Nothing in a conversation that is gone."""
    with executed(_FOLLOWING, {"conversation": conversation_id}) as cursor:
        return Following(*(cursor.fetchone() or (False,) * len(Following._fields)))


def place_in_line(turn_id: UUID) -> int | None:
    """From 1, of a turn among those of its person that no worker has claimed; None when it is none of these."""
    queued = Turn.objects.filter(status=Turn.Status.QUEUED)
    person = queued.filter(pk=turn_id).values_list("conversation__owner", flat=True).first()
    return queued.filter(conversation__owner=person, pk__lte=turn_id).count() if person is not None else None


@contextmanager
def executed(statement: str, bound: Mapping[str, Any] | Sequence[Any]) -> Iterator[Any]:
    """A cursor that binds on the server, as other cursors of Django's do not: else nothing could be prepared. With more
    values than the protocol has numbers for, one of those others."""
    connection.ensure_connection()
    kind: Any = ServerBindingCursor if len(bound) <= MOST_BOUND else ClientCursor
    with connection._prepare_cursor(kind(connection.connection)) as cursor:  # type: ignore[attr-defined]  # as `connection.cursor` does
        cursor.execute(statement, bound)
        yield cursor


@cache
def _statement(template: str, **kinds: type[models.Model]) -> str:
    """With the columns of these rows, each by the name it has in the statement."""
    columns = (f'{name}."{field.column}"' for name, kind in kinds.items() for field in kind._meta.concrete_fields)
    return template.replace("{columns}", ", ".join(columns))


def _read(kind: type[Row], values: Iterator[Any]) -> Row:
    """The row whose columns come next, in the order of `_statement`."""
    names, converters = _reading(kind)
    read = list(islice(values, len(names)))
    for place, convert in converters:
        read[place] = convert(read[place], None, connection)
    return kind.from_db(connection.alias, names, read)


@cache
def _reading(kind: type[models.Model]) -> tuple[list[str], list[tuple[int, Callable[..., Any]]]]:
    """The names of its fields, and what makes values of theirs from what the database gives, by their places."""
    fields = list(enumerate(kind._meta.concrete_fields))
    converters = [(place, convert) for place, field in fields for convert in field.get_db_converters(connection)]
    return [field.attname for _, field in fields], converters
