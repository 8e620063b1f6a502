from django.db import migrations, models

FIELD = {
    "editable": False,
    "help_text": "A person gave the title, or a model was asked for one, once.",
}


class Migration(migrations.Migration):
    dependencies = [("chat", "0003_conversation_documents_conversation_project_and_more")]

    operations = [
        # Conversations from before keep the titles they have.
        migrations.AddField("conversation", "titled", models.BooleanField(default=True, **FIELD)),
        migrations.AlterField("conversation", "titled", models.BooleanField(default=False, **FIELD)),
    ]
