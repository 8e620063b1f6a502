from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0065_characters_of_shares'),
    ]

    operations = [
        migrations.AddField(
            model_name='turn',
            name='scope',
            field=models.JSONField(db_default={}, default=dict, editable=False),
        ),
    ]
