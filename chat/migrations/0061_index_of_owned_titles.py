"""The index of each person's own titles, which no write waits for.

The index of before, `conversation_title_words`, stays for the code of the version before.
"""

from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    atomic = False
    dependencies: ClassVar = [("chat", "0060_owned_titles")]
    operations: ClassVar = [
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS conversation_owned_titles", ""),
        migrations.RunSQL(
            "CREATE INDEX CONCURRENTLY conversation_owned_titles ON chat_conversation"
            " USING gin (chat_owned_title_words(owner_id, title)) WHERE deleted IS NULL",
            "DROP INDEX CONCURRENTLY conversation_owned_titles",
        ),
        # Of which words are frequent nobody asks, and each would be read out of titles.
        migrations.RunSQL("ALTER INDEX conversation_owned_titles ALTER COLUMN 1 SET STATISTICS 0", ""),
    ]
