from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0075_team_shares'),
    ]

    operations = [
        migrations.AddField(
            model_name='conversation',
            name='loaded_tools',
            field=models.JSONField(db_default=[], default=list, editable=False),
        ),
    ]
