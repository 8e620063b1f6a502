"""Whose each turn is, as with messages in 0040: so a table that grows with every answer can be divided by owner.

Code that does not know the column leaves it empty: the trigger fills it. After the insert, since a conversation may
come with the same statement.
"""

from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

FORWARDS = """
CREATE FUNCTION chat_turn_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE chat_turn SET owner_id = place.owner_id FROM chat_conversation AS place
    WHERE chat_turn.id = NEW.id AND place.id = NEW.conversation_id;
    RETURN NULL;
END $$;
CREATE TRIGGER turn_owner AFTER INSERT ON chat_turn FOR EACH ROW WHEN (NEW.owner_id IS NULL)
EXECUTE FUNCTION chat_turn_owner();
"""
BACKWARDS = """
DROP TRIGGER turn_owner ON chat_turn;
DROP FUNCTION chat_turn_owner();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("chat", "0055_drop_message_words"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations: ClassVar = [
        migrations.AddField(
            model_name="turn",
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
