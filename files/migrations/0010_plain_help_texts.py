import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('files', '0009_words_by_passage'),
    ]

    operations = [
        migrations.AlterField(
            model_name='file',
            name='searchable',
            field=models.BooleanField(default=False, help_text='Its passages are in the index.'),
        ),
        migrations.AlterField(
            model_name='reranker',
            name='candidates',
            field=models.PositiveSmallIntegerField(default=30, help_text='Number of the best passages of a search that it reorders.', validators=[django.core.validators.MinValueValidator(2), django.core.validators.MaxValueValidator(100)], verbose_name='passages'),
        ),
        migrations.AlterField(
            model_name='reranker',
            name='longest',
            field=models.PositiveIntegerField(default=1024, help_text='Tokens of a passage that it reads. A search that cuts a passage says so in its note.', validators=[django.core.validators.MinValueValidator(32)], verbose_name='longest passage'),
        ),
        migrations.AlterField(
            model_name='reranker',
            name='model',
            field=models.CharField(blank=True, help_text='Empty for a server with a single model.', max_length=200),
        ),
        migrations.AlterField(
            model_name='reranker',
            name='patience',
            field=models.PositiveSmallIntegerField(default=5, help_text='Seconds after which the original order is used.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(15)], verbose_name='longest wait'),
        ),
    ]
