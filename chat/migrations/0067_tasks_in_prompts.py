from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0066_scope_of_turns'),
    ]

    operations = [
        migrations.AddField(
            model_name='conversation',
            name='tasks_in_prompts',
            field=models.BooleanField(db_default=True, default=True, help_text="Whether its owner's tasks go along with its messages."),
        ),
    ]
