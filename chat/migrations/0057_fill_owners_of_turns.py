"""Fills in whose the turns of before are, beside a product that goes on answering.

In batches that are stored one by one: a migration that was interrupted goes on where it was.
"""

from typing import Any, ClassVar

from django.db import migrations

BATCH = 10_000
_LAST = "SELECT id FROM chat_turn WHERE id > %s ORDER BY id OFFSET %s LIMIT 1"
_FILL = """
UPDATE chat_turn SET owner_id = place.owner_id FROM chat_conversation AS place
WHERE place.id = chat_turn.conversation_id AND chat_turn.owner_id IS NULL
    AND chat_turn.id > %s AND chat_turn.id <= %s
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
    dependencies: ClassVar = [("chat", "0056_owned_turns")]
    operations: ClassVar = [migrations.RunPython(fill, migrations.RunPython.noop)]
