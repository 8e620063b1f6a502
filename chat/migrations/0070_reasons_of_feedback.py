from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("chat", "0067_tasks_in_prompts")]
    operations: ClassVar = [
        migrations.AddField(
            model_name="message",
            name="feedback_reasons",
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list, editable=False),
        ),
        migrations.AddField(
            model_name="message",
            name="feedback_comment",
            field=models.TextField(blank=True, db_default="", default="", editable=False),
        ),
        migrations.AddField(
            model_name="message", name="feedback_at", field=models.DateTimeField(editable=False, null=True)
        ),
        migrations.CreateModel(
            name="JudgedAnswer",
            fields=[],
            options={
                "verbose_name": "judged answer",
                "verbose_name_plural": "feedback",
                "ordering": ["-id"],
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("chat.message",),
        ),
    ]
