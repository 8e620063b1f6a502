from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("chat", "0062_tool_results")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="turn",
            name="prompt_cap",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Tokens that its prompt may take at most, where its person asked to send less.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="turn",
            name="context_notice",
            field=models.TextField(
                blank=True, default="", help_text="What is said of that and what to do, or of a count that is oddly low."
            ),
        ),
        migrations.AddField(
            model_name="lastprompt",
            name="window_cap",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
    ]
