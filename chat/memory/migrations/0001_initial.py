import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import uuid_utils.compat
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('accounts', '0021_memory'),
        ('chat', '0077_memory'),
        ('personas', '0016_memory'),
        ('projects', '0009_plain_help_texts'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Profile',
            fields=[
                ('person', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='memory_profile', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('about', models.TextField(blank=True, max_length=1500)),
                ('answering', models.TextField(blank=True, max_length=1500)),
                ('in_prompts', models.BooleanField(default=True, help_text='Whether prompts have the profile and the facts.')),
                ('proposals', models.CharField(choices=[('off', 'Never'), ('ask', 'Ask me about each fact'), ('keep', 'Keep without asking')], default='off', max_length=10)),
                ('updated', models.DateTimeField(auto_now=True)),
            ],
        ),
        migrations.CreateModel(
            name='Fact',
            fields=[
                ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                ('scope', models.CharField(choices=[('person', 'All my conversations'), ('project', 'One project'), ('persona', 'One persona')], default='person', max_length=10)),
                ('text', models.CharField(blank=True, max_length=300)),
                ('terms', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, editable=False, size=None)),
                ('status', models.CharField(choices=[('proposed', 'Proposed'), ('kept', 'Remembered'), ('outdated', 'Outdated'), ('forgotten', 'Forgotten')], default='proposed', max_length=10)),
                ('pinned', models.BooleanField(default=False)),
                ('proposed_by', models.CharField(choices=[('tool', 'A model, during an answer'), ('pass', 'A model, after the conversation'), ('person', 'You')], max_length=10)),
                ('confirmed', models.DateTimeField(null=True)),
                ('forgotten', models.DateTimeField(null=True)),
                ('last_used', models.DateTimeField(null=True)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('answer', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chat.message')),
                ('confirmed_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('outdated_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='outdates', to='memory.fact')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='facts', to=settings.AUTH_USER_MODEL)),
                ('persona', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='personas.persona')),
                ('project', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='projects.project')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='ConversationFact',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('summary', models.UUIDField(null=True)),
                ('left_out', models.BooleanField(default=False)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('conversation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='facts', to='chat.conversation')),
                ('fact', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='uses', to='memory.fact')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='FactSource',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('quote', models.CharField(max_length=1000)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('fact', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sources', to='memory.fact')),
                ('message', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chat.message')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='MemoryPass',
            fields=[
                ('conversation', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='memory_pass', serialize=False, to='chat.conversation')),
                ('read_to', models.UUIDField(null=True)),
                ('status', models.CharField(choices=[('queued', 'Waiting'), ('running', 'Running'), ('done', 'Done')], default='queued', max_length=10)),
                ('attempt', models.PositiveIntegerField(default=0)),
                ('tries', models.PositiveIntegerField(default=0)),
                ('heartbeat', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('status__in', ['queued', 'running'])), fields=['heartbeat'], name='memory_pass_heartbeat')],
            },
        ),
        migrations.AddIndex(
            model_name='fact',
            index=django.contrib.postgres.indexes.GinIndex(fields=['terms'], name='fact_terms'),
        ),
        migrations.AddIndex(
            model_name='fact',
            index=models.Index(fields=['owner', 'status', '-id'], name='fact_of_owner'),
        ),
        migrations.AddIndex(
            model_name='fact',
            index=models.Index(condition=models.Q(('pinned', True)), fields=['owner'], name='fact_pinned'),
        ),
        migrations.AddConstraint(
            model_name='fact',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('persona', None), ('project', None), ('scope', 'person')), models.Q(('persona', None), ('project__isnull', False), ('scope', 'project')), models.Q(('persona__isnull', False), ('project', None), ('scope', 'persona')), _connector='OR'), name='fact_of_one_scope'),
        ),
        migrations.AddConstraint(
            model_name='fact',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'forgotten'), _negated=True), models.Q(('pinned', False), ('terms', []), ('text', '')), _connector='OR'), name='forgotten_fact_is_empty'),
        ),
        migrations.AddConstraint(
            model_name='conversationfact',
            constraint=models.UniqueConstraint(fields=('conversation', 'fact'), name='one_use_of_a_fact_per_conversation'),
        ),
        migrations.AddConstraint(
            model_name='factsource',
            constraint=models.UniqueConstraint(fields=('fact', 'message'), name='one_source_per_message'),
        ),
    ]
