import accounts.models.openid
import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import workspace.models.settings
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0017_tasks_in_prompts'),
        ("llm", "0022_plain_help_texts"),
    ]

    operations = [
        migrations.AlterField(
            model_name='limit',
            name='amount',
            field=models.DecimalField(decimal_places=6, help_text='The maximum. Money is in US dollars, storage in bytes.', max_digits=20, validators=[django.core.validators.MinValueValidator(0)]),
        ),
        migrations.AlterField(
            model_name='limit',
            name='group',
            field=models.ForeignKey(blank=True, help_text='It limits each member separately.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='limits', to='accounts.peoplegroup', verbose_name='group'),
        ),
        migrations.AlterField(
            model_name='limit',
            name='per',
            field=models.CharField(blank=True, choices=[('day', 'A day'), ('month', 'A month')], help_text='For tokens, money and turns. The other limits have no period.', max_length=5),
        ),
        migrations.AlterField(
            model_name='limit',
            name='token',
            field=models.ForeignKey(blank=True, help_text="It limits the programs that use the token. The limits of the token's person apply too.", null=True, on_delete=django.db.models.deletion.CASCADE, related_name='limits', to='accounts.apitoken', verbose_name='API token'),
        ),
        migrations.AlterField(
            model_name='limit',
            name='user',
            field=models.ForeignKey(blank=True, help_text='The person that it limits. Without a person, a group and a token it limits each person separately.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='limits', to=settings.AUTH_USER_MODEL, verbose_name='person'),
        ),
        migrations.AlterField(
            model_name='openidprovider',
            name='admin_group',
            field=models.CharField(blank=True, help_text='Members of this group of the provider become superusers. It is checked at each sign-in. Empty: nobody.', max_length=200, verbose_name='group of administrators'),
        ),
        migrations.AlterField(
            model_name='openidprovider',
            name='creates_accounts',
            field=models.BooleanField(default=True, help_text='Off: only people who are known, or who are matched by their e-mail address, can sign in.', verbose_name='new people get an account'),
        ),
        migrations.AlterField(
            model_name='openidprovider',
            name='groups_claim',
            field=models.CharField(blank=True, default='groups', help_text="The claim that lists a person's groups. Empty: the provider's groups are ignored.", max_length=100, verbose_name='groups claim'),
        ),
        migrations.AlterField(
            model_name='openidprovider',
            name='issuer',
            field=models.CharField(help_text="The provider's own address, such as https://id.example.org/realms/team.", max_length=300, unique=True, validators=[accounts.models.openid.validate_issuer]),
        ),
        migrations.AlterField(
            model_name='openidprovider',
            name='matches_email',
            field=models.BooleanField(default=False, help_text='The first person who signs in with a verified e-mail address gets the account with this address. Use it only with a provider that verifies addresses.', verbose_name='match accounts by e-mail'),
        ),
        migrations.AlterField(
            model_name='openidprovider',
            name='name',
            field=models.CharField(help_text='The text of the button on the sign-in page: “Sign in with …”.', max_length=60, unique=True),
        ),
        migrations.AlterField(
            model_name='openidprovider',
            name='only',
            field=models.BooleanField(default=False, help_text='Only administrators can sign in with a password or passkey, at /admin/.', verbose_name='in the place of passwords'),
        ),
        migrations.AlterField(
            model_name='peoplegroup',
            name='all_models',
            field=models.BooleanField(default=False, help_text='Includes those that are added later.', verbose_name='all models'),
        ),
        migrations.AlterField(
            model_name='peoplegroup',
            name='all_tool_servers',
            field=models.BooleanField(default=False, help_text='Includes those that are added later.', verbose_name='all tool servers'),
        ),
        migrations.AlterField(
            model_name='peoplegroup',
            name='allowed_models',
            field=models.ManyToManyField(blank=True, help_text='Used if not all are allowed.', related_name='+', to='llm.model', verbose_name='models'),
        ),
        migrations.AlterField(
            model_name='peoplegroup',
            name='allowed_tool_servers',
            field=models.ManyToManyField(blank=True, help_text='Used if not all are allowed.', related_name='+', to='llm.toolserver', verbose_name='tool servers'),
        ),
        migrations.AlterField(
            model_name='peoplegroup',
            name='claim',
            field=models.CharField(blank=True, db_index=True, help_text='A value of the groups claim of an OpenID provider. At each sign-in there, people are added to this group or removed from it. Empty: only people change the members.', max_length=200, verbose_name='claim it follows'),
        ),
        migrations.AlterField(
            model_name='peoplegroup',
            name='conversation_days',
            field=models.PositiveSmallIntegerField(blank=True, help_text="Days after the last message, instead of the workspace's setting. 0 is for ever; empty is the workspace's setting. If a person is in several groups, the fewest days count.", null=True, validators=[django.core.validators.MaxValueValidator(3650)], verbose_name='days that conversations are kept'),
        ),
        migrations.AlterField(
            model_name='peoplegroup',
            name='managers',
            field=models.ManyToManyField(blank=True, help_text='They add and remove members on the page “Groups” of their settings.', related_name='managed_groups', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AlterField(
            model_name='peoplegroup',
            name='may',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(choices=[('share', 'Share conversations by link'), ('tokens', 'Make API tokens'), ('publish_personas', 'Make personas for others'), ('upload', 'Upload files'), ('run_tasks', 'Let models work through tasks'), ('web', 'Let models search the web and open pages'), ('export', 'Export conversations')], max_length=20), blank=True, default=list, help_text='People have the rights of all their groups.', size=None, verbose_name='may'),
        ),
        migrations.AlterField(
            model_name='user',
            name='accepts_model_tasks',
            field=models.BooleanField(db_default=False, default=False, help_text='Off: tasks and checklists of models are proposals. Prompts contain them after the person accepts them.', verbose_name='tasks that models make count at once'),
        ),
        migrations.AlterField(
            model_name='user',
            name='asks_before_search',
            field=models.BooleanField(db_default=False, default=False, help_text="A model's web search waits until the person allows it. The workspace can require this for everyone.", verbose_name='asks before each web search'),
        ),
        migrations.AlterField(
            model_name='user',
            name='email_confirmed',
            field=models.BooleanField(db_default=True, default=True, editable=False, help_text='An administrator entered the address, or the person confirmed it by mail.', verbose_name='e-mail confirmed'),
        ),
        migrations.AlterField(
            model_name='user',
            name='legal_hold',
            field=models.BooleanField(db_default=False, default=False, help_text='Nothing of this person is erased. A conversation that they delete is hidden from them and kept. Their files, tasks, projects, personas and prompts cannot be deleted or given to others.', verbose_name='legal hold'),
        ),
        migrations.AlterField(
            model_name='user',
            name='password_once',
            field=models.BooleanField(db_default=False, default=False, editable=False, help_text='Someone else chose the password. The person must choose another one first.', verbose_name='password once'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='accent',
            field=models.CharField(blank=True, help_text='The colour of buttons and links, such as #0f6b5c; empty: the default. It must be readable on light pages. The colour for dark pages and the tints are derived from it.', max_length=7, verbose_name='accent colour'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='api_conversation_days',
            field=models.PositiveSmallIntegerField(blank=True, help_text='Days for conversations of programs in the OpenAI protocol, with their images; 0 is for ever. Empty: the setting API_CONVERSATION_DAYS of the installation.', null=True, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(3650)], verbose_name='days that requests of programs are kept'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='citation_model',
            field=models.ForeignKey(blank=True, help_text='Empty: only rules check citations. The model is called once for each answer with citations. It says for each sentence whether the cited passage supports it, and the answer ends after that.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='llm.model', verbose_name='model that checks citations'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='conversation_days',
            field=models.PositiveSmallIntegerField(db_default=0, default=0, help_text='Days after the last message; 0 is for ever. Then conversations are erased, with files that nothing else uses, unless they or their owner are under a legal hold.', validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(3650)], verbose_name='days that conversations are kept'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='date_awareness',
            field=models.CharField(choices=[('day', 'The day'), ('minute', 'Day and time to the minute'), ('off', 'No date')], default='day', help_text='What the model learns about the time of a message. Personas have their own setting.', max_length=10, verbose_name='date in prompts without a persona'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='default_language',
            field=models.CharField(choices=[('en', 'English'), ('vi', 'Tiếng Việt')], default='en', help_text='The language if the person has not chosen one and the browser asks for none of these.', max_length=10, verbose_name='default language'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='languages',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=10), default=workspace.models.settings.all_languages, help_text='The languages that people can choose, and that pages use if a browser asks for them.', size=None, verbose_name='languages offered'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='name',
            field=models.CharField(default='Glasshouse', help_text='Shown in the sidebar, on the sign-in page, in page titles and in the admin.', max_length=60, verbose_name='name'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='page_reader',
            field=models.ForeignKey(blank=True, help_text="Reads scanned pages instead of Tesseract. It must see images. Each page is a model call of the file's owner. If it fails, Tesseract reads the page if it is installed.", null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='llm.model', verbose_name='model that reads scans'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='password_length',
            field=models.PositiveSmallIntegerField(default=10, help_text='8 to 64 characters, for new passwords.', validators=[django.core.validators.MinValueValidator(8), django.core.validators.MaxValueValidator(64)], verbose_name='least length of a password'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='search_approval',
            field=models.BooleanField(db_default=False, default=False, help_text="A model's web search waits until the owner of the conversation allows it. Off: people decide in their settings. The search terms are sent to the search service.", verbose_name='ask before each web search'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='second_factor',
            field=models.CharField(choices=[('nobody', 'Nobody has to have one'), ('administrators', 'Administrators have to have one'), ('everybody', 'Everybody has to have one')], db_default='nobody', default='nobody', help_text='People who need a second factor and have none can open only the page to set it up. API tokens still work.', max_length=20, verbose_name='second factor'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='session_days',
            field=models.PositiveSmallIntegerField(default=14, help_text='1 to 365 days without use. It applies to a browser from its next visit on.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(365)], verbose_name='days until a browser is signed out'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='session_most_days',
            field=models.PositiveSmallIntegerField(db_default=90, default=90, help_text='1 to 3650 days after the sign-in. It applies to a browser from its next visit on.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(3650)], verbose_name='days until a browser is signed out, used or not'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='sharing',
            field=models.BooleanField(default=True, help_text='Whether people may share conversations by link. Off: existing links do not work until it is on again.', verbose_name='links to conversations'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='sign_up',
            field=models.BooleanField(db_default=False, default=False, help_text='With a confirmed e-mail address. It needs the setting EMAIL_URL of the installation.', verbose_name='people sign up by themselves'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='sign_up_domains',
            field=models.CharField(blank=True, db_default='', default='', help_text='Domains such as example.org, separated by commas. Other domains are refused. Empty: all domains.', max_length=500, verbose_name='domains of those who sign up'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='task_tools',
            field=models.BooleanField(default=False, help_text="Models that call tools may list, create and mark the person's tasks. Personas have their own setting.", verbose_name='task tools without a persona'),
        ),
        migrations.AlterField(
            model_name='workspace',
            name='today_tasks',
            field=models.BooleanField(default=True, help_text="Each prompt lists the person's tasks of the day. Off: only tasks that the person mentions with @ID.", verbose_name="today's tasks in prompts"),
        ),
    ]
