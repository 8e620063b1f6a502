import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("llm", "0022_plain_help_texts"),
        ('personas', '0013_notes_of_the_workspace'),
    ]

    operations = [
        migrations.AlterField(
            model_name='budgetprofile',
            name='always_remind_citations',
            field=models.BooleanField(db_default=False, default=False, help_text='Off: only after a search.', verbose_name='remind of citations whenever documents are in the prompt'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='ceiling',
            field=models.PositiveIntegerField(blank=True, help_text='In tokens. If this and the next number are empty, the shares apply.', null=True, verbose_name='summarise above (the ceiling)'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='effort',
            field=models.CharField(blank=True, choices=[('none', 'no reasoning'), ('minimal', 'minimal'), ('low', 'low'), ('medium', 'medium'), ('high', 'high'), ('xhigh', 'very high'), ('max', 'maximal')], default='', help_text='For models that accept one, if neither the person nor the persona chooses.', max_length=10, verbose_name='effort of reasoning'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='expected_user',
            field=models.PositiveIntegerField(default=512, help_text='In tokens: the room for the next message.', verbose_name='expected of the next message'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='floor',
            field=models.PositiveIntegerField(blank=True, help_text='In tokens. If this and the previous number are empty, the shares apply.', null=True, verbose_name='summarise down to (the floor)'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='keep_recent',
            field=models.PositiveIntegerField(default=8, help_text='The newest messages that no summary replaces.', verbose_name='newest messages that stay word for word'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='max_cycles',
            field=models.PositiveSmallIntegerField(default=6, help_text='1 to 20. The model may call tools after each step.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(20)], verbose_name='model calls of one turn at most'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='message_overhead',
            field=models.PositiveIntegerField(default=4, help_text='In tokens: the overhead of a message in addition to its text.', verbose_name='added to each message'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='note_form',
            field=models.CharField(choices=[('auto', "By the model's size"), ('plain', 'Without a mark'), ('heading', 'Under a heading'), ('tags', 'In <note> tags, which the system prompt explains')], db_default='auto', default='auto', help_text="How the model distinguishes them from the person's words. By size: without a mark for models below 3 billion parameters, below a heading for others.", max_length=20, verbose_name='mark of reminders, instructions and lists of files'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='omission_note',
            field=models.BooleanField(default=True, help_text='Put a sentence in the place of earlier messages without room.', verbose_name='tell the model what was left out'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='run_max_minutes',
            field=models.PositiveSmallIntegerField(default=60, help_text='1 to 1,440. Time that a run waits for a person does not count.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1440)], verbose_name='minutes of work of one run at most'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='run_max_steps',
            field=models.PositiveSmallIntegerField(default=50, help_text="1 to 1,000. A run works through a task's checklist.", validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)], verbose_name='turns of one run at most'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='run_max_tokens',
            field=models.PositiveIntegerField(default=500000, help_text='Tokens read and written. A run above the limit starts no other turn.', validators=[django.core.validators.MinValueValidator(1000)], verbose_name='tokens of one run at most'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='summaries',
            field=models.BooleanField(default=True, help_text='Summarise in the background, before the room is full.', verbose_name='summarise long conversations'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='summary_model',
            field=models.ForeignKey(blank=True, help_text="Empty: the conversation's model.", null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='llm.model', verbose_name='model that writes summaries'),
        ),
        migrations.AlterField(
            model_name='budgetprofile',
            name='window',
            field=models.PositiveIntegerField(blank=True, help_text='In tokens; empty: no limit.', null=True, verbose_name="most of the model's window to use"),
        ),
        migrations.AlterField(
            model_name='persona',
            name='effort',
            field=models.CharField(blank=True, choices=[('none', 'no reasoning'), ('minimal', 'minimal'), ('low', 'low'), ('medium', 'medium'), ('high', 'high'), ('xhigh', 'very high'), ('max', 'maximal')], default='', help_text='For models that accept one, if the person does not choose.', max_length=10, verbose_name='effort of reasoning'),
        ),
        migrations.AlterField(
            model_name='persona',
            name='replaces_system_prompt',
            field=models.BooleanField(default=False, help_text='Send these instructions instead of the system prompt.'),
        ),
        migrations.AlterField(
            model_name='persona',
            name='tools',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=100), blank=True, default=list, help_text='web_search, open_url, tasks, or a tool of a server as server__tool; server__* for all its tools.', size=None),
        ),
        migrations.AlterField(
            model_name='prompttext',
            name='note',
            field=models.CharField(blank=True, help_text='What this version changes, for comparisons.', max_length=200),
        ),
        migrations.AlterField(
            model_name='reminder',
            name='text',
            field=models.TextField(help_text='One or two short sentences at the end of the prompt.'),
        ),
        migrations.AlterField(
            model_name='savedprompt',
            name='name',
            field=models.CharField(help_text='The word that people type after / to find it.', max_length=60),
        ),
        migrations.AlterField(
            model_name='summaryprompt',
            name='note',
            field=models.CharField(blank=True, help_text='What this version changes, for comparisons.', max_length=200),
        ),
        migrations.AlterField(
            model_name='systemprompt',
            name='note',
            field=models.CharField(blank=True, help_text='What this version changes, for comparisons.', max_length=200),
        ),
    ]
