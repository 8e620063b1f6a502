from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Beside a product that goes on answering: the index takes no lock that writes wait for."""

    atomic = False

    dependencies = [
        ("chat", "0030_tags_and_pins"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="conversation",
            index=models.Index(
                condition=models.Q(("pinned__isnull", False)), fields=["owner"], name="conversation_pinned"
            ),
        ),
    ]
