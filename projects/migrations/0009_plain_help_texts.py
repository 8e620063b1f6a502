from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('projects', '0008_where_tasks_were_proposed'),
    ]

    operations = [
        migrations.AlterField(
            model_name='project',
            name='web',
            field=models.BooleanField(default=True, help_text='Whether models may search the web and open pages in its conversations.'),
        ),
        migrations.AlterField(
            model_name='task',
            name='archetype',
            field=models.CharField(blank=True, choices=[('user', "The user's"), ('model', "The model's"), ('hybrid', 'Both')], help_text='Only for tasks.', max_length=10),
        ),
    ]
