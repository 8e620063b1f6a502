import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('llm', '0012_model_found'),
    ]

    operations = [
        migrations.AlterField(
            model_name='model',
            name='efforts',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(choices=[('none', 'no reasoning'), ('minimal', 'minimal'), ('low', 'low'), ('medium', 'medium'), ('high', 'high'), ('xhigh', 'very high'), ('max', 'maximal')], max_length=10), blank=True, default=list, help_text='Those that its provider takes; none: off and on of a model that reasons, else nothing to choose.', size=None, verbose_name='efforts of reasoning'),
        ),
    ]
