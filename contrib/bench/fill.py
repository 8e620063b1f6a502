"""Fill the database of DATABASE_URL with a large workspace.

It gets people, conversations, messages with turns and calls, files with chunks, words and vectors, projects with files
and a member, tasks, links, attachments and summaries, and entries of the audit that form no valid chain.

    DJANGO_SETTINGS_MODULE=config.settings python -m contrib.bench.fill --people 2000 --messages 1000000

The other numbers have defaults. A second run with the same numbers adds only rows that are missing. The people are
called fill-000001 and so on, and have no password.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from datetime import timedelta

import django

django.setup()

from django.db import connection, models, transaction
from django.utils import timezone

from accounts.models import User
from chat.ledger.models import ModelCall, UsageDay
from chat.ledger.sums import sum_days
from chat.models import Attachment, Conversation, Message, Share, Summary, Turn
from core.audit.models import Entry
from files.index.chunking import VERSION
from files.index.embedders import active_embedder
from files.index.indexing import VERSION as WORD_INDEX
from files.models import Chunk, File, FileText
from llm.models import Model, Provider
from personas.models import Persona
from projects.models import Membership, Project, ProjectFile
from projects.planner.models import Task

DAYS = 90  # all rows are spread over these days before the first run
BATCH_ROWS = 100_000  # rows in one statement
OWN = 50  # files and tasks per person, and files per project
# A text with words to search for, in three languages. They are in all texts, or in a third, a tenth or a hundredth of
# them. The last words of a text are in few other texts.
TEXT = """concat_ws(' ', 'everywhere', CASE WHEN n % 3 = 0 THEN 'third' END, CASE WHEN n % 10 = 0 THEN 'tenth' END,
CASE WHEN n % 100 = 0 THEN 'hundredth' END, CASE WHEN n % 7 = 0 THEN 'hợp đồng' END,
CASE WHEN n % 11 = 0 THEN '京都の天気' END, 'word' || n,
(SELECT string_agg('term' || n::bigint * k * 7919 % (k * 500), ' ') FROM generate_series(1, {terms}) AS k))"""
MESSAGE, FILE = TEXT.format(terms=30), TEXT.format(terms=10)
# Writes the same postings as `files.index.indexing`, for files with one chunk, without the stemming of a language.
WRITE_POSTINGS = """
INSERT INTO files_posting (file_id, lexeme, entries)
SELECT file_id, lexeme, int8send(id) || int2send(cardinality(positions)::int2) || int2send(indexed_words::int2)
FROM (
    SELECT chunk.file_id, chunk.id, file.indexed_words, chunk.text
    FROM files_chunk AS chunk JOIN files_file AS file ON file.id = chunk.file_id
    WHERE file.name LIKE 'File %.txt' AND NOT EXISTS (SELECT FROM files_posting WHERE file_id = file.id)
) AS given, unnest(to_tsvector('simple', given.text))
"""
VECTOR = """(SELECT array_agg(sin(n::float * k * k))
FROM generate_series(1, (SELECT dimensions FROM files_embedder WHERE active)) AS k)::vector"""
Columns = Mapping[str, str]  # by attribute of the model, an SQL expression for row number `n`


def key(kind: int, number: str, at: str) -> str:
    """Return SQL for a UUIDv7 with the time `at`. A row gets the same id in every run."""
    moment = f"lpad(to_hex((extract(epoch FROM {at}) * 1000)::bigint), 12, '0')"
    return f"({moment} || '7{kind:03x}8' || lpad(to_hex({number}), 15, '0'))::uuid"


def insert(row: type[models.Model], columns: Columns, first: int, last: int) -> int:
    """Insert the missing rows `first` to `last`, and return how many. Other columns get the default of their field."""
    names, values, parameters = [], [], []
    for field in row._meta.concrete_fields:
        if isinstance(field, models.AutoField):
            continue
        names.append(connection.ops.quote_name(field.column or ""))
        if field.attname in columns:
            values.append(columns[field.attname].replace("%", "%%"))
            continue
        values.append("%s")
        moment = timezone.now() if getattr(field, "auto_now_add", False) or getattr(field, "auto_now", False) else None
        default = moment or (field.get_default() if field.has_default() or not field.null else None)
        parameters.append(field.get_db_prep_save(default, connection))
    with transaction.atomic(), connection.cursor() as cursor:
        target, expressions = f"{connection.ops.quote_name(row._meta.db_table)} ({', '.join(names)})", ", ".join(values)
        numbers = f"generate_series({first}, {last}) AS n"
        # All parts of the statement are constants of this module.
        cursor.execute(f"INSERT INTO {target} SELECT {expressions} FROM {numbers} ON CONFLICT DO NOTHING", parameters)  # noqa: S608
        return int(cursor.rowcount)


def fill(people: int, conversations: int, messages: int) -> dict[str, int]:
    """Add the missing rows, and return the number of added rows by model."""
    first = User.objects.filter(username="fill-000001").values_list("date_joined", flat=True).first()
    began = first or timezone.now() - timedelta(days=DAYS)
    provider, _ = Provider.objects.get_or_create(name="fill", defaults={"base_url": "http://127.0.0.1:9/v1"})
    active_embedder()
    model, _ = Model.objects.get_or_create(provider=provider, name="fill", defaults={"context_window": 32_768})
    each = max(2, messages // max(1, conversations) // 2 * 2)  # messages of one conversation, an even number
    at = f"'{began.isoformat()}'::timestamptz + interval '{DAYS} days' * "
    start = f"'{began.isoformat()}'::timestamptz"
    person, place = key(1, "{}", start), key(2, "{}", f"{at}({{}})::float / {conversations}")

    def owner(of: str) -> str:
        return person.format(f"({of}) % {people} + 1")

    def conversation(of: str) -> str:
        return place.format(of, of)

    here = f"(n - 1) / {each} + 1"  # the conversation of message n
    moment = f"({at}(n)::float / {messages})"

    def message(of: str) -> str:
        return key(3, of, f"({at}({of})::float / {messages})")

    turn = {
        "id": key(4, "n", f"({at}(n)::float * 2 / {messages})"),
        "conversation_id": conversation(f"(n * 2 - 1) / {each} + 1"),
        "owner_id": owner(f"(n * 2 - 1) / {each} + 1"),
        "user_message_id": message("(n * 2 - 1)"),
        "answer_id": message("(n * 2)"),
        "model_id": f"'{model.pk}'::uuid",
        "status": "CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'done' END",
        "created": f"{at}(n)::float * 2 / {messages}",
        "finished": f"{at}(n)::float * 2 / {messages}",
        "first_token_ms": "300 + n % 1000",
    }
    call = {
        "id": key(7, "n", f"({at}(n)::float * 2 / {messages})"),
        "person_id": owner(f"(n * 2 - 1) / {each} + 1"),
        "group_id": "(SELECT id FROM accounts_peoplegroup WHERE everyone)",
        "turn_id": turn["id"],
        "model_id": turn["model_id"],
        "model_name": "'fill'",
        "provider_name": "'fill'",
        "purpose": "'answer'",
        "input": "1000 + n % 1000",
        "output": "100 + n % 100",
        "created": turn["created"],
    }
    projects = max(1, people // 10)  # project n and its files belong to person n + 1; person n + 2 is a member
    project, file = key(6, "{}", start), key(8, "{}", f"{at}({{}})::float / {people * OWN}")
    own_file = f"((n - 1) / {OWN} + 1 + (n - 1) % {OWN} * {people})"
    first_of, last_of = f"((n - 1) * {each} + 1)", f"(n * {each})"  # messages of the conversation n
    created = f"{at}(n)::float / {conversations}"
    tables: list[tuple[type[models.Model], int, Columns]] = [
        (
            User,
            people,
            {
                "id": person.format("n"),
                "username": "'fill-' || lpad(n::text, 6, '0')",
                "date_joined": start,
                "password": "'!'",
            },
        ),
        (Persona, projects, {"id": key(5, "n", start), "owner_id": owner("n"), "name": "'Persona ' || n"}),
        (Project, projects, {"id": project.format("n"), "owner_id": owner("n"), "name": "'Project ' || n"}),
        (
            Membership,
            projects,
            {
                "id": key(10, "n", start),
                "project_id": project.format("n"),
                "user_id": owner("(n + 1)"),
                "role": "'reader'",
            },
        ),
        (
            File,
            people * OWN,
            {
                "id": file.format("n", "n"),
                "owner_id": owner("n"),
                "name": "'File ' || n || '.txt'",
                "media_type": "'text/plain'",
                "size": "1000 + n % 1000",
                "sha256": "encode(sha256(n::text::bytea), 'hex')",
                "blob": "encode(sha256(n::text::bytea), 'hex')",
                "status": "'ready'",
                "searchable": "true",
                "chunker": str(VERSION),
                "word_index": str(WORD_INDEX),
                "languages": "jsonb_build_object('simple', 1)",
                "indexed_chunks": "1",
                "indexed_words": f"cardinality(string_to_array({FILE}, ' '))",
                "created": f"{at}(n)::float / {people * OWN}",
            },
        ),
        (FileText, people * OWN, {"file_id": file.format("n", "n"), "text": FILE}),
        (
            Chunk,
            people * OWN,
            {
                "file_id": file.format("n", "n"),
                "start": "0",
                "end": f"length({FILE})",
                "text": FILE,
                "tokens": "50",
                "ordinal": "0",
                "embedder_id": "(SELECT id FROM files_embedder WHERE active)",
                "embedding": VECTOR,
            },
        ),
        (
            ProjectFile,
            projects * OWN,
            {
                "project_id": project.format(f"((n - 1) / {OWN} + 1)"),
                "file_id": file.format(own_file, own_file),
                "ordinal": f"(n - 1) % {OWN}",
            },
        ),
        (
            Task,
            people * OWN,
            {
                "id": key(11, "n", start),
                "owner_id": owner("n"),
                "level": "'task'",
                "horizon": "'day'",
                "archetype": "'user'",
                "code": "'D' || lpad(n::text, 9, '0')",
                "date": f"({at}(n)::float / {people * OWN})::date",
                "title": "'Task ' || n",
            },
        ),
        (
            Conversation,
            conversations,
            {
                "id": conversation("n"),
                "owner_id": owner("n"),
                "title": "'Conversation ' || n",
                "updated": created,
                # If its owner has a project, every fifth conversation is in it.
                "project_id": f"CASE WHEN n % {people} BETWEEN 1 AND {projects} AND (n - 1) / {people} % 5 = 0"
                f" THEN {project.format(f'(n % {people})')} END",
            },
        ),
        (
            Message,
            conversations * each,
            {
                "id": message("n"),
                "conversation_id": conversation(here),
                "owner_id": owner(here),
                "parent_id": f"CASE WHEN (n - 1) % {each} > 0 THEN {message('(n - 1)')} END",
                "depth": f"(n - 1) % {each}",
                "role": f"CASE WHEN (n - 1) % {each} % 2 = 0 THEN 'user' ELSE 'assistant' END",
                "parts": f"jsonb_build_array(jsonb_build_object('type', 'text', 'text', {MESSAGE}))",
                "created": moment,
            },
        ),
        (Turn, conversations * each // 2, turn),
        (ModelCall, conversations * each // 2, call),
        (
            Attachment,
            conversations // 10,
            {
                "message_id": message(first_of),
                "file_id": file.format(*[f"((n - 1) % {people * OWN} + 1)"] * 2),
                "name": f"'File ' || ((n - 1) % {people * OWN} + 1) || '.txt'",
                "ordinal": "0",
            },
        ),
        (
            Share,
            conversations // 20,
            {
                "id": key(12, "n", created),
                "conversation_id": conversation("n"),
                "leaf_id": message(last_of),
                "title": "'Conversation ' || n",
                "token": "'fill-' || n",
            },
        ),
        (
            Summary,
            conversations // 10,
            {
                "id": key(13, "n", created),
                "conversation_id": conversation("n"),
                "leaf_id": message(last_of),
                "first_id": message(first_of),
                "last_id": message(last_of),
                "messages": str(each),
                **dict.fromkeys(("span_start", "span_end", "as_of"), created),
                "sections": "jsonb_build_array(jsonb_build_object('name', 'Now', 'text', repeat('said so ', 80)))",
                "tokens_in": "1000",
                "tokens_out": "150",
                "timezone": "'UTC'",
                "prompt_version": "1",
                "withdrawn": created,  # so that no prompt is planned with a summary
            },
        ),
        (
            Entry,
            messages // 10,
            {
                "id": key(14, "n", f"({at}(n)::float / {messages // 10})"),
                "at": f"{at}(n)::float / {messages // 10}",
                "how": "'page'",
                "actor_id": owner("n"),
                "actor_name": f"'fill-' || lpad((n % {people} + 1)::text, 6, '0')",
                "address": "'192.0.2.' || n % 256",
                "request_id": "md5(n::text)",
                "action": "'share.made'",
                "object_type": "'share'",
                "object_id": "md5(n::text)",
                "object_name": "'Conversation ' || n",
                **dict.fromkeys(("personal_digest", "digest", "hash"), "encode(sha256(n::text::bytea), 'hex')"),
                "sequence": "n",
            },
        ),
    ]
    counts = {row._meta.model_name or "": added(row, number, columns) for row, number, columns in tables}
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE chat_conversation AS place SET leaf_id = newest.id FROM chat_message AS newest"
            " WHERE newest.conversation_id = place.id AND place.leaf_id IS NULL AND newest.depth = %s"
            " AND place.title LIKE 'Conversation %%'",
            [each - 1],
        )
        cursor.execute(WRITE_POSTINGS)
    UsageDay.objects.all().delete()  # the sums of earlier days lack the new calls
    sum_days()
    return counts


def added(row: type[models.Model], number: int, columns: Columns) -> int:
    began, count = time.monotonic(), 0
    for first in range(1, number + 1, BATCH_ROWS):
        count += insert(row, columns, first, min(number, first + BATCH_ROWS - 1))
    print(f"{row._meta.model_name}: {count:,} of {number:,} added in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return count


def main(arguments: list[str]) -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    for name, number in (("people", 2_000), ("conversations", 100_000), ("messages", 1_000_000)):
        reader.add_argument(f"--{name}", type=int, default=number)
    fill(**vars(reader.parse_args(arguments)))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")


if __name__ == "__main__":
    main(sys.argv[1:])
