import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0020_sharing_inside'),
    ]

    operations = [
        migrations.AddField(
            model_name='workspace',
            name='memory',
            field=models.BooleanField(db_default=True, default=True, help_text='People may write a profile for the models, and models may propose facts about people who allow it. Off: nothing of it is sent, and nothing new is stored.', verbose_name='memory'),
        ),
        migrations.AddField(
            model_name='workspace',
            name='memory_answering',
            field=models.TextField(blank=True, db_default='', default='', help_text='For people who have not written how models should answer them. At most 1,500 characters.', max_length=1500, verbose_name='how models should answer by default'),
        ),
        migrations.AddField(
            model_name='workspace',
            name='memory_days',
            field=models.PositiveSmallIntegerField(db_default=0, default=0, help_text='Days after a fact was last used; 0 is for ever. Then it is forgotten, unless it or its person is under a legal hold.', validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(3650)], verbose_name='days that facts are kept'),
        ),
        migrations.AddField(
            model_name='workspace',
            name='memory_unasked',
            field=models.BooleanField(db_default=False, default=False, help_text='People may choose that facts which a model proposes are kept without asking them.', verbose_name='facts kept without asking'),
        ),
    ]
