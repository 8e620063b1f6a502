from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Beside a product that goes on answering: the index takes no lock that writes wait for."""

    atomic = False

    dependencies = [
        ("chat", "0027_timings_of_turns"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="turn",
            index=models.Index(
                condition=models.Q(("status__in", ["failed", "interrupted"])), fields=["-id"], name="turn_broken"
            ),
        ),
    ]
