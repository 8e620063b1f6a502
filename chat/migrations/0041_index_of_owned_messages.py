"""Fills in whose the messages of before are, and builds the index by it, beside a product that goes on answering.

In batches that are stored one by one, and an index that no write waits for: a migration that was interrupted goes on
where it was. The index of before, `message_words`, stays for the code of the version before, and 0055 drops it.
"""

from typing import Any, ClassVar

from django.db import migrations

BATCH = 10_000
_LAST = "SELECT id FROM chat_message WHERE id > %s ORDER BY id OFFSET %s LIMIT 1"
_FILL = """
UPDATE chat_message SET owner_id = place.owner_id FROM chat_conversation AS place
WHERE place.id = chat_message.conversation_id AND chat_message.owner_id IS NULL
    AND chat_message.id > %s AND chat_message.id <= %s
"""
_FIRST, _NEWEST = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"


def fill(_apps: Any, editor: Any) -> None:
    after: Any = _FIRST
    with editor.connection.cursor() as cursor:
        while after != _NEWEST:
            cursor.execute(_LAST, [after, BATCH - 1])
            last = cursor.fetchone()
            upto = last[0] if last else _NEWEST
            cursor.execute(_FILL, [after, upto])
            after = upto


class Migration(migrations.Migration):
    atomic = False
    dependencies: ClassVar = [("chat", "0040_owned_messages")]
    operations: ClassVar = [
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS message_owned_words", ""),
        migrations.RunSQL(
            "CREATE INDEX CONCURRENTLY message_owned_words ON chat_message"
            " USING gin (chat_owned_words(owner_id, parts)) WHERE status <> 'pending'",
            "DROP INDEX CONCURRENTLY message_owned_words",
        ),
        # Of which words are frequent nobody asks, and each would be read out of messages.
        migrations.RunSQL("ALTER INDEX message_owned_words ALTER COLUMN 1 SET STATISTICS 0", ""),
    ]
