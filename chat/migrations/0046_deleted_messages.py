from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Code that does not know the column shows what was deleted meanwhile, and inserts it empty."""

    dependencies: ClassVar = [("chat", "0045_citations_of_readings")]
    operations: ClassVar = [
        migrations.AddField(
            model_name="message",
            name="deleted",
            field=models.DateTimeField(editable=False, help_text="Hidden since then; gone a day later.", null=True),
        ),
    ]
