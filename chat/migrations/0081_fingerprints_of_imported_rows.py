"""Imports note how their rows were, so that an undo keeps what a person has changed, and note their tasks."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0080_findable'),
    ]

    operations = [
        migrations.AddField(
            model_name='importedrow',
            name='fingerprint',
            field=models.CharField(blank=True, db_default='', default='', editable=False, max_length=64),
        ),
        migrations.AlterField(
            model_name='importedrow',
            name='kind',
            field=models.CharField(choices=[('conversation', 'Conversation'), ('file', 'File'), ('persona', 'Persona'), ('project', 'Project'), ('prompt', 'Saved prompt'), ('fact', 'Remembered fact'), ('task', 'Task')], max_length=20),
        ),
    ]
