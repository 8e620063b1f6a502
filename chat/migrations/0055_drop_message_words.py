"""Drops the index of all words of all messages, which no search has read since each word there is its owner's.

It cost every stored message a second index. Nobody waits while it goes (CONCURRENTLY).
"""

from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    atomic = False
    dependencies: ClassVar = [("chat", "0054_searches_in_the_ledger")]
    operations: ClassVar = [
        migrations.RunSQL(
            "DROP INDEX CONCURRENTLY IF EXISTS message_words",
            "CREATE INDEX CONCURRENTLY message_words ON chat_message"
            " USING gin (chat_message_words(parts)) WHERE status <> 'pending'",
        ),
    ]
