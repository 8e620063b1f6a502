import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0071_index_of_feedback'),
    ]

    operations = [
        migrations.AlterField(
            model_name='attachment',
            name='name',
            field=models.CharField(help_text="The file's name, also after its deletion.", max_length=255),
        ),
        migrations.AlterField(
            model_name='conversation',
            name='automatic_summaries',
            field=models.BooleanField(default=True, help_text='Off after a person has undone a summary.'),
        ),
        migrations.AlterField(
            model_name='conversation',
            name='deleted',
            field=models.DateTimeField(blank=True, help_text='Hidden since then; erased a day later.', null=True),
        ),
        migrations.AlterField(
            model_name='conversation',
            name='effort',
            field=models.CharField(blank=True, choices=[('none', 'no reasoning'), ('minimal', 'minimal'), ('low', 'low'), ('medium', 'medium'), ('high', 'high'), ('xhigh', 'very high'), ('max', 'maximal')], default='', help_text="The person's last choice; empty: the default of the persona, the profile or the model.", max_length=10, verbose_name='effort of reasoning'),
        ),
        migrations.AlterField(
            model_name='conversation',
            name='imported_from',
            field=models.CharField(blank=True, editable=False, help_text='The product that it was imported from, and its id there.', max_length=200),
        ),
        migrations.AlterField(
            model_name='conversation',
            name='legal_hold',
            field=models.BooleanField(db_default=False, default=False, help_text='Not erased, even if it is deleted.'),
        ),
        migrations.AlterField(
            model_name='conversation',
            name='pinned',
            field=models.DateTimeField(blank=True, help_text='Pinned above the list since then.', null=True),
        ),
        migrations.AlterField(
            model_name='conversation',
            name='titled',
            field=models.BooleanField(default=False, editable=False, help_text='A person wrote the title, or a model was asked for one.'),
        ),
        migrations.AlterField(
            model_name='import',
            name='blob',
            field=models.CharField(blank=True, editable=False, help_text='Stored until it is imported.', max_length=200),
        ),
        migrations.AlterField(
            model_name='import',
            name='counting',
            field=models.BooleanField(db_default=False, default=False, editable=False, help_text='The tokens of the imported messages are not counted yet.'),
        ),
        migrations.AlterField(
            model_name='import',
            name='known',
            field=models.PositiveIntegerField(default=0, help_text='Conversations that were imported before.'),
        ),
        migrations.AlterField(
            model_name='import',
            name='name',
            field=models.CharField(help_text='The name of the uploaded file.', max_length=255),
        ),
        migrations.AlterField(
            model_name='import',
            name='size',
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False, help_text='Stored bytes of the upload; 0 after its deletion.'),
        ),
        migrations.AlterField(
            model_name='message',
            name='deleted',
            field=models.DateTimeField(editable=False, help_text='Hidden since then; erased a day later.', null=True),
        ),
        migrations.AlterField(
            model_name='renderedanswer',
            name='digest',
            field=models.CharField(help_text='A digest of all inputs. Another digest means that it is outdated.', max_length=64),
        ),
        migrations.AlterField(
            model_name='replay',
            name='layout',
            field=models.CharField(blank=True, choices=[('near_end', 'Persona and project files near the end'), ('files_first', 'Project files first (cheaper with prompt caching)'), ('all_first', 'Everything stable first (cheapest with prompt caching)')], help_text="Empty: the profile's value, or the value at that time.", max_length=20),
        ),
        migrations.AlterField(
            model_name='replay',
            name='policy',
            field=models.CharField(blank=True, choices=[('recent', 'Recent: the newest turns, without gaps'), ('priority', 'Priority: tool groups first, then what fits')], help_text="Empty: the profile's value, or the value at that time.", max_length=20),
        ),
        migrations.AlterField(
            model_name='run',
            name='heartbeat',
            field=models.DateTimeField(help_text='When the next step was last determined.'),
        ),
        migrations.AlterField(
            model_name='run',
            name='starts_itself',
            field=models.BooleanField(default=False, help_text='Its draft starts without being accepted.'),
        ),
        migrations.AlterField(
            model_name='run',
            name='unasked',
            field=models.BooleanField(db_default=False, default=False, help_text="The server started it. A person's request for a run takes it over."),
        ),
        migrations.AlterField(
            model_name='share',
            name='characters',
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False, help_text='Characters that can be read through it; 0 for an older link.'),
        ),
        migrations.AlterField(
            model_name='share',
            name='expires',
            field=models.DateTimeField(blank=True, help_text='The link ends at this time; empty: never.', null=True),
        ),
        migrations.AlterField(
            model_name='share',
            name='names_sources',
            field=models.BooleanField(db_default=False, default=False, help_text='With `shows_context`: also the names of files and the arguments of tools.'),
        ),
        migrations.AlterField(
            model_name='share',
            name='shows_context',
            field=models.BooleanField(db_default=False, default=False, help_text='Readers see how many tokens of each kind the model saw, without names and texts.'),
        ),
        migrations.AlterField(
            model_name='share',
            name='title',
            field=models.CharField(blank=True, help_text="The conversation's title at that time.", max_length=200),
        ),
        migrations.AlterField(
            model_name='summary',
            name='as_of',
            field=models.DateTimeField(help_text='The time that “Today” and “Now” refer to.'),
        ),
        migrations.AlterField(
            model_name='summary',
            name='leaf',
            field=models.ForeignKey(help_text='The end of the branch at that time.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chat.message'),
        ),
        migrations.AlterField(
            model_name='summary',
            name='left_aside',
            field=models.JSONField(default=list, help_text='Ids of messages that are not in it.'),
        ),
        migrations.AlterField(
            model_name='summary',
            name='messages',
            field=models.PositiveIntegerField(help_text='Number of messages that it covers.'),
        ),
        migrations.AlterField(
            model_name='summary',
            name='model_name',
            field=models.CharField(blank=True, help_text='The model that wrote it; empty for a person.', max_length=200),
        ),
        migrations.AlterField(
            model_name='summary',
            name='timezone',
            field=models.CharField(help_text='The time zone of “Today”.', max_length=64),
        ),
        migrations.AlterField(
            model_name='summary',
            name='tokens_in',
            field=models.PositiveIntegerField(help_text='Tokens of the messages that it covers.'),
        ),
        migrations.AlterField(
            model_name='summary',
            name='tokens_out',
            field=models.PositiveIntegerField(help_text='Tokens of its text in a prompt.'),
        ),
        migrations.AlterField(
            model_name='summaryjob',
            name='again',
            field=models.BooleanField(db_default=False, default=False, help_text='It replaces a job whose worker was lost. It is not replaced again.'),
        ),
        migrations.AlterField(
            model_name='summaryjob',
            name='created',
            field=models.DateTimeField(default=django.utils.timezone.now, editable=False, help_text='For a replacement: when the replaced job was created.'),
        ),
        migrations.AlterField(
            model_name='summaryjob',
            name='fixed',
            field=models.PositiveIntegerField(default=0, help_text='Tokens of the parts that all prompts have.'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='context_notice',
            field=models.TextField(blank=True, default='', help_text='An explanation and advice, also for an unusually low count.'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='cost',
            field=models.DecimalField(decimal_places=12, help_text='US dollars for all its calls; empty without a price.', max_digits=26, null=True),
        ),
        migrations.AlterField(
            model_name='turn',
            name='effort',
            field=models.CharField(blank=True, choices=[('none', 'no reasoning'), ('minimal', 'minimal'), ('low', 'low'), ('medium', 'medium'), ('high', 'high'), ('xhigh', 'very high'), ('max', 'maximal')], default='', help_text="The person's choice. A program's effort is in its options.", max_length=10, verbose_name='effort of reasoning'),
        ),
        migrations.AlterField(
            model_name='turn',
            name='fallback_reason',
            field=models.CharField(blank=True, help_text='The error after which a fallback of the model was asked.', max_length=60),
        ),
        migrations.AlterField(
            model_name='turn',
            name='finish_detail',
            field=models.CharField(blank=True, db_default='', default='', help_text="The provider's word for an unknown reason.", max_length=100),
        ),
        migrations.AlterField(
            model_name='turn',
            name='finish_reason',
            field=models.CharField(blank=True, help_text='Why the last step of the model ended.', max_length=20),
        ),
        migrations.AlterField(
            model_name='turn',
            name='first_token_ms',
            field=models.PositiveIntegerField(blank=True, help_text='Time from the question to the first token, including reasoning and waiting.', null=True),
        ),
        migrations.AlterField(
            model_name='turn',
            name='prompt_cap',
            field=models.PositiveIntegerField(blank=True, help_text='The maximum tokens of its prompt, if the person asked to send less.', null=True),
        ),
        migrations.AlterField(
            model_name='turn',
            name='slot',
            field=models.PositiveSmallIntegerField(default=0, help_text='The index among the models side by side, from 0.'),
        ),
    ]
