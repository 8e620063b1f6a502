import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import llm.models.provider
import llm.models.web_access
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('llm', '0021_models_for_people'),
    ]

    operations = [
        migrations.AlterField(
            model_name='model',
            name='context_window',
            field=models.PositiveIntegerField(default=4096, help_text='In tokens: the room for prompt and answer together.', validators=[django.core.validators.MinValueValidator(256)], verbose_name='window'),
        ),
        migrations.AlterField(
            model_name='model',
            name='effort',
            field=models.CharField(blank=True, choices=[('none', 'no reasoning'), ('minimal', 'minimal'), ('low', 'low'), ('medium', 'medium'), ('high', 'high'), ('xhigh', 'very high'), ('max', 'maximal')], default='', help_text="The effort without a choice; empty: the provider's default.", max_length=10, verbose_name='effort of reasoning'),
        ),
        migrations.AlterField(
            model_name='model',
            name='efforts',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(choices=[('none', 'no reasoning'), ('minimal', 'minimal'), ('low', 'low'), ('medium', 'medium'), ('high', 'high'), ('xhigh', 'very high'), ('max', 'maximal')], max_length=10), blank=True, default=list, help_text='The efforts that its provider accepts. Empty: off and on for a model that reasons, otherwise no choice.', size=None, verbose_name='efforts of reasoning'),
        ),
        migrations.AlterField(
            model_name='model',
            name='fallback',
            field=models.ForeignKey(blank=True, help_text='The model to use if the provider of this one is down or over its limit.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='llm.model'),
        ),
        migrations.AlterField(
            model_name='model',
            name='learnt_window',
            field=models.PositiveIntegerField(blank=True, help_text='A window smaller than the configured one, proven by its server.', null=True),
        ),
        migrations.AlterField(
            model_name='model',
            name='max_images',
            field=models.PositiveSmallIntegerField(blank=True, help_text='The maximum in one prompt. Older images are left out. Empty: no limit is known.', null=True, validators=[django.core.validators.MinValueValidator(1)], verbose_name='most images'),
        ),
        migrations.AlterField(
            model_name='model',
            name='max_output',
            field=models.PositiveIntegerField(blank=True, help_text="In tokens; empty: the model's own limit, or the remaining room.", null=True, validators=[django.core.validators.MinValueValidator(1)], verbose_name='longest answer'),
        ),
        migrations.AlterField(
            model_name='model',
            name='own_effort',
            field=models.CharField(blank=True, choices=[('none', 'no reasoning'), ('minimal', 'minimal'), ('low', 'low'), ('medium', 'medium'), ('high', 'high'), ('xhigh', 'very high'), ('max', 'maximal'), ('unsaid', 'not said')], db_default='', default='', help_text="The effort for Glasshouse's own calls. Empty: the lowest that the model accepts.", max_length=10, verbose_name='effort for titles and summaries'),
        ),
        migrations.AlterField(
            model_name='model',
            name='several_system_messages',
            field=models.BooleanField(default=True, help_text='Off: all system messages are joined into one at the start.', verbose_name='takes several system messages'),
        ),
        migrations.AlterField(
            model_name='model',
            name='untagged_reasoning',
            field=models.BooleanField(db_default=False, default=False, help_text='Its text begins with reasoning that ends with a closing tag, without an opening tag.', verbose_name='reasons without an opening tag'),
        ),
        migrations.AlterField(
            model_name='model',
            name='vision',
            field=models.BooleanField(default=False, help_text='It gets the pictures of messages.', verbose_name='sees images'),
        ),
        migrations.AlterField(
            model_name='model',
            name='whole_answers',
            field=models.BooleanField(db_default=False, default=False, help_text='Its server does not stream, so an answer arrives in one piece.', verbose_name='answers only whole'),
        ),
        migrations.AlterField(
            model_name='model',
            name='written_calls',
            field=models.BooleanField(db_default=False, default=False, help_text='Tool calls in its text are run. “Test connection” detects this.', verbose_name='writes tool calls as text'),
        ),
        migrations.AlterField(
            model_name='provider',
            name='base_url',
            field=models.CharField(blank=True, help_text="Empty: the provider's own address. For example http://127.0.0.1:8001/v1 for vLLM.", max_length=200, validators=[llm.models.provider.validate_base_url], verbose_name='base URL'),
        ),
        migrations.AlterField(
            model_name='provider',
            name='max_tools',
            field=models.PositiveIntegerField(blank=True, help_text="Maximum number of tools in one request. Empty: 128 with OpenAI's protocols, no limit with the others.", null=True, validators=[django.core.validators.MinValueValidator(1)], verbose_name='most tools'),
        ),
        migrations.AlterField(
            model_name='provider',
            name='silence_timeout',
            field=models.PositiveIntegerField(default=120, help_text='Seconds without data from the provider after which an answer fails.', validators=[django.core.validators.MinValueValidator(1)], verbose_name='longest silence'),
        ),
        migrations.AlterField(
            model_name='toolserver',
            name='approval_required',
            field=models.BooleanField(default=True, help_text='Each call of its tools waits until the owner of the conversation allows it. For tools that change or send something or cost money.', verbose_name='ask before each call'),
        ),
        migrations.AlterField(
            model_name='toolserver',
            name='base_url',
            field=models.CharField(blank=True, help_text='The address of streamable HTTP, such as https://tools.example/mcp.', max_length=200, validators=[llm.models.provider.validate_base_url], verbose_name='URL'),
        ),
        migrations.AlterField(
            model_name='toolserver',
            name='command',
            field=models.CharField(blank=True, help_text='A program and its arguments. It runs with the rights of the worker.', max_length=500, validators=[llm.models.provider.validate_command]),
        ),
        migrations.AlterField(
            model_name='toolserver',
            name='name',
            field=models.CharField(help_text="Models see its tools as this name, two underscores and the tool's name. A persona names the tools that it may use.", max_length=24, unique=True, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9-]+\\Z', 'Use only letters without accents, digits and hyphens.')]),
        ),
        migrations.AlterField(
            model_name='toolserver',
            name='reaches_out',
            field=models.BooleanField(default=True, help_text='Its tools use the internet or an outside service. Projects with the web switched off do not offer them.', verbose_name='reaches out'),
        ),
        migrations.AlterField(
            model_name='toolserver',
            name='secret_name',
            field=models.CharField(default='Authorization', help_text='The HTTP header with the secret; for a process, the environment variable.', max_length=100, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9_-]+\\Z', 'Use only letters, digits, hyphens and underscores.')]),
        ),
        migrations.AlterField(
            model_name='webaccess',
            name='allowed_hosts',
            field=models.TextField(blank=True, help_text='One per line. Addresses of these hosts are opened without asking. *.example.org means all hosts below example.org, but not example.org.', validators=[llm.models.web_access.validate_hosts]),
        ),
        migrations.AlterField(
            model_name='webaccess',
            name='denied_hosts',
            field=models.TextField(blank=True, help_text='One per line. These hosts are never opened, also not through a redirect. A host on both lists is denied.', validators=[llm.models.web_access.validate_hosts]),
        ),
        migrations.AlterField(
            model_name='websearch',
            name='base_url',
            field=models.CharField(blank=True, help_text='For example http://searxng:8080, with JSON output enabled. Empty: the address of Brave.', max_length=200, validators=[llm.models.provider.validate_base_url], verbose_name='base URL'),
        ),
    ]
