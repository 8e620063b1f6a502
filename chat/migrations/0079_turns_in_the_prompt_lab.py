"""The prompt lab starts from a turn and names its fields as budget profiles do; a full reading has one name."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0078_rows_of_imports'),
        ('personas', '0016_memory'),
    ]

    operations = [
        migrations.AlterField(
            model_name='modelcall',
            name='purpose',
            field=models.CharField(choices=[('answer', 'Answer'), ('run', 'Run'), ('summary', 'Summary'), ('title', 'Title'), ('replay', 'Prompt lab'), ('citations', 'Check of citations'), ('memory', 'Search for facts'), ('reading', 'Pages read'), ('full_read', 'Full reading'), ('embedding', 'Embedding'), ('reranking', 'Re-ranking')], max_length=10),
        ),
        migrations.AddField(
            model_name='replay',
            name='turn_id',
            field=models.UUIDField(editable=False, null=True),
        ),
        migrations.AlterField(
            model_name='replay',
            name='layout',
            field=models.CharField(blank=True, choices=[('near_end', 'Persona and project files near the end'), ('files_first', 'Project files first (cheaper with prompt caching)'), ('all_first', 'Everything stable first (cheapest with prompt caching)')], db_default='', default='', help_text="Empty: the profile's value, or the value at that time.", max_length=20, verbose_name='order of the prompt'),
        ),
        migrations.AlterField(
            model_name='replay',
            name='policy',
            field=models.CharField(blank=True, choices=[('recent', 'Recent: the newest turns, without gaps'), ('priority', 'Priority: tool groups first, then what fits')], db_default='', default='', help_text="Empty: the profile's value, or the value at that time.", max_length=20, verbose_name='what stays when not everything fits'),
        ),
        migrations.AlterField(
            model_name='replay',
            name='profile',
            field=models.ForeignKey(blank=True, help_text='Empty: with the numbers of that time.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='personas.budgetprofile', verbose_name='budget profile'),
        ),
    ]
