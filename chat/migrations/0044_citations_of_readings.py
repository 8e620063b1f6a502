from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0043_index_of_tokens_calls'),
    ]

    operations = [
        migrations.AddField(
            model_name='reading',
            name='citation_check',
            field=models.JSONField(default=None, null=True),
        ),
    ]
