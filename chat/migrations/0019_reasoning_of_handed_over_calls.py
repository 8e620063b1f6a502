from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0018_marks'),
    ]

    operations = [
        migrations.AddField(
            model_name='stepreasoning',
            name='calls',
            field=models.CharField(db_index=True, default='', max_length=16),
        ),
        migrations.AddField(
            model_name='stepreasoning',
            name='reminder',
            field=models.TextField(default=''),
        ),
    ]
