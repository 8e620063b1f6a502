from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0044_request_of_turns'),
    ]

    operations = [
        migrations.AddField(
            model_name='reading',
            name='citation_check',
            field=models.JSONField(default=None, null=True),
        ),
    ]
