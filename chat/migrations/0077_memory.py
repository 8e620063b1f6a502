from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0076_loaded_tools'),
    ]

    operations = [
        migrations.AddField(
            model_name='conversation',
            name='memory_in_prompts',
            field=models.BooleanField(db_default=True, default=True, help_text='Whether what is remembered about its owner goes along, and may grow.'),
        ),
        migrations.AddField(
            model_name='conversation',
            name='proposes',
            field=models.BooleanField(db_default=False, default=False, editable=False, help_text='Facts were proposed below its answers.'),
        ),
        migrations.AlterField(
            model_name='modelcall',
            name='purpose',
            field=models.CharField(choices=[('answer', 'Answer'), ('run', 'Run'), ('summary', 'Summary'), ('title', 'Title'), ('replay', 'Prompt lab'), ('citations', 'Check of citations'), ('memory', 'Search for facts'), ('reading', 'Pages read'), ('full_read', 'Reading of a whole file'), ('embedding', 'Embedding'), ('reranking', 'Re-ranking')], max_length=10),
        ),
    ]
