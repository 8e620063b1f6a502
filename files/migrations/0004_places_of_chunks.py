from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Beside a product that goes on answering: the index takes no lock that writes wait for."""

    atomic = False

    dependencies = [
        ("files", "0003_text_encoding"),
    ]

    operations = [
        migrations.AddField(
            model_name="file",
            name="chunker",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="chunk",
            name="heading",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AddField(
            model_name="chunk",
            name="table_head",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        AddIndexConcurrently(
            model_name="file",
            index=models.Index(condition=models.Q(("searchable", True)), fields=["chunker"], name="file_by_chunker"),
        ),
    ]
