from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Beside a product that goes on answering: the index takes no lock that writes wait for."""

    atomic = False

    dependencies = [
        ("chat", "0031_index_of_pinned_conversations"),
    ]

    operations = [
        migrations.AlterField(
            model_name="conversation",
            name="origin",
            field=models.CharField(
                choices=[("workspace", "Workspace"), ("api", "OpenAI protocol"), ("temporary", "Temporary")],
                default="workspace",
                editable=False,
                max_length=20,
            ),
        ),
        AddIndexConcurrently(
            model_name="conversation",
            index=models.Index(
                condition=models.Q(("origin", "temporary")), fields=["created"], name="conversation_temporary"
            ),
        ),
    ]
