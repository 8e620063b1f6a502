from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("files", "0010_plain_help_texts")]

    operations = [
        migrations.AddField(
            model_name="file",
            name="with_conversation",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
    ]
