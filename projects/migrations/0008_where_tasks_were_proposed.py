from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('projects', '0007_tasks_that_models_propose'),
    ]

    operations = [
        migrations.AddField(
            model_name='task',
            name='proposed_in',
            field=models.UUIDField(blank=True, editable=False, null=True),
        ),
    ]
