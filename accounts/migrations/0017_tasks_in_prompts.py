from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0016_what_models_may_do_unasked'),
    ]

    operations = [
        migrations.AddField(
            model_name='user',
            name='tasks_in_prompts',
            field=models.BooleanField(db_default=True, default=True, help_text='Off: no model sees their tasks beside a message. Runs and the task tools of a persona go on.', verbose_name='tasks go along with their messages'),
        ),
        migrations.AddField(
            model_name='user',
            name='tasks_notice_seen',
            field=models.BooleanField(db_default=False, default=False, editable=False, help_text='They have read the notice that tasks go along with messages.'),
        ),
    ]
