from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0073_forms_in_the_prompt_lab'),
    ]

    operations = [
        migrations.AddField(
            model_name='conversation',
            name='forked_from',
            field=models.UUIDField(editable=False, help_text='The message of another conversation down to which it was copied.', null=True),
        ),
    ]
