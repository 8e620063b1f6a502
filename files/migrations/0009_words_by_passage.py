from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Beside a product that goes on answering: the index takes no lock that writes wait for."""

    atomic = False

    dependencies = [
        ("files", "0008_places_of_recognised_words"),
    ]

    operations = [
        migrations.AddField(
            model_name="file",
            name="languages",
            field=models.JSONField(db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name="file",
            name="word_index",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="file",
            name="uploaded_again",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="chunk",
            name="language",
            field=models.CharField(blank=True, db_default="", default="", max_length=20),
        ),
        migrations.AddField(
            model_name="embedder",
            name="passage_prefix",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="Put before a text, with its spaces.", max_length=200
            ),
        ),
        migrations.AddField(
            model_name="embedder",
            name="query_prefix",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="Put before a question, with its spaces.", max_length=200
            ),
        ),
        AddIndexConcurrently(
            model_name="file",
            index=models.Index(
                condition=models.Q(("searchable", True)), fields=["word_index"], name="file_by_word_index"
            ),
        ),
    ]
