from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("chat", "0026_counting_of_imports"),
    ]

    operations = [
        migrations.AddField(
            model_name="turn",
            name="first_token_ms",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="From asking to the first token, thoughts included; waiting is part of it.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="turn",
            name="stop_asked",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
