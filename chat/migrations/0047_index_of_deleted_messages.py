from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Beside a product that goes on answering: the index takes no lock that writes wait for."""

    atomic = False
    dependencies: ClassVar = [("chat", "0046_deleted_messages")]
    operations: ClassVar = [
        AddIndexConcurrently(
            model_name="message",
            index=models.Index(
                condition=models.Q(("deleted__isnull", False)), fields=["deleted"], name="message_deleted"
            ),
        ),
    ]
