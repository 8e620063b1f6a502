r"""Search by owner: each word of the index belongs to the one whose message has it, see `chat.models.words`.

`chat_owned_words` puts the last eight digits of the owner's id before each word of a message, so that a look-up, of the
beginning of a word, too, reads what this person has of it, whatever everybody else wrote. Two people whose digits are
the same read each other's entries and no more: the query asks for the owner besides. Of a word it takes 200
characters, as many as a query has; places are left out, since an index has none. `chat_owned_query` does the same to a
query, in which words beside each other become words of the same message.

`chat_messages_with` finds them, apart from the rest of a search: the planner cannot know how few of all messages with
such words are this person's, and would read their conversations message by message, or begin processes for it.

The owner of a message is the one of its conversation, which never changes. Code that does not know the column leaves
it empty: the trigger fills it. After the insert, since a conversation may come with the same statement.
"""

from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

FORWARDS = r"""
CREATE FUNCTION chat_owned_words(owner uuid, parts jsonb) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 10000
BEGIN ATOMIC
    SELECT array_to_tsvector(array_agg(right(owner::text, 8) || left(word, 200)))
    FROM unnest(tsvector_to_array(chat_message_words(parts))) AS word;
END;
CREATE FUNCTION chat_owned_query(owner uuid, asked tsquery) RETURNS tsquery LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN regexp_replace(
        regexp_replace(asked::text, '<[^>]+>', '&', 'g'), '''([^'']+)''', '''' || right(owner::text, 8) || '\1''', 'g'
    )::tsquery;
CREATE FUNCTION chat_messages_with(whose uuid, asked tsquery) RETURNS SETOF uuid LANGUAGE sql STABLE STRICT ROWS 100
SET max_parallel_workers_per_gather = 0
BEGIN ATOMIC
    SELECT id FROM chat_message
    WHERE status <> 'pending' AND owner_id = whose
        AND chat_owned_words(owner_id, parts) @@ chat_owned_query(whose, asked);
END;
CREATE FUNCTION chat_message_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE chat_message SET owner_id = place.owner_id FROM chat_conversation AS place
    WHERE chat_message.id = NEW.id AND place.id = NEW.conversation_id;
    RETURN NULL;
END $$;
CREATE TRIGGER message_owner AFTER INSERT ON chat_message FOR EACH ROW WHEN (NEW.owner_id IS NULL)
EXECUTE FUNCTION chat_message_owner();
"""
BACKWARDS = """
DROP TRIGGER message_owner ON chat_message;
DROP FUNCTION chat_message_owner();
DROP FUNCTION chat_messages_with(uuid, tsquery);
DROP FUNCTION chat_owned_query(uuid, tsquery);
DROP FUNCTION chat_owned_words(uuid, jsonb);
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("chat", "0039_index_of_readings_calls"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations: ClassVar = [
        migrations.AddField(
            model_name="message",
            name="owner",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.RunSQL(FORWARDS, BACKWARDS),
    ]
