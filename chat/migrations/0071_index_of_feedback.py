from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Beside a product that goes on answering: the index takes no lock that writes wait for."""

    atomic = False
    dependencies: ClassVar = [("chat", "0070_reasons_of_feedback")]
    operations: ClassVar = [
        AddIndexConcurrently(
            model_name="message",
            index=models.Index(
                condition=models.Q(("feedback", ""), _negated=True),
                fields=["-feedback_at", "-id"],
                name="message_judged",
            ),
        ),
    ]
