from typing import ClassVar

from django.db import migrations

FILL = """
INSERT INTO chat_readingfile (reading_id, file_id, name, "start", "end")
SELECT id, file_id, file_name, 0, coalesce((passages->>-1)::int, 0) FROM chat_reading
WHERE NOT EXISTS (SELECT FROM chat_readingfile WHERE reading_id = chat_reading.id)
"""


class Migration(migrations.Migration):
    """Readings of one file, which are all until now, have a row of it."""

    dependencies: ClassVar = [("chat", "0049_files_of_readings")]
    operations: ClassVar = [migrations.RunSQL(FILL, migrations.RunSQL.noop)]
