from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("chat", "0082_speech_in_the_ledger"),
    ]

    operations = [
        migrations.AddField(
            model_name="modelcall",
            name="failed",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="import",
            name="tries",
            field=models.PositiveSmallIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="How often a worker has begun since the last progress.",
            ),
        ),
    ]
