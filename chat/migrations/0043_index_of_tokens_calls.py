from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Beside a product that goes on answering: the index takes no lock that writes wait for."""

    atomic = False

    dependencies = [
        ("chat", "0042_reserved_by_turns"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="modelcall",
            index=models.Index(
                condition=models.Q(("token__isnull", False)), fields=["token", "created"], name="model_call_of_token"
            ),
        ),
    ]
