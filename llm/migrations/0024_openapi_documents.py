import django.db.models.deletion
import llm.models.provider
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('llm', '0023_tool_servers_over_sse'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='toolserver',
            name='tool_server_reachable',
        ),
        migrations.AddField(
            model_name='toolserver',
            name='operations',
            field=models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list, verbose_name='operations that are tools'),
        ),
        migrations.AddField(
            model_name='toolserver',
            name='own_network',
            field=models.BooleanField(db_default=False, default=False, help_text='Requests to an API may go to private addresses, too. Off: to public addresses only.', verbose_name='in the own network'),
        ),
        migrations.AddField(
            model_name='toolserver',
            name='unasked',
            field=models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list, help_text='If each call of the server asks, these ask, too.', verbose_name='operations that may change something without asking'),
        ),
        migrations.AlterField(
            model_name='toolserver',
            name='base_url',
            field=models.CharField(blank=True, help_text='The address, such as https://tools.example/mcp; with SSE mostly https://tools.example/sse. For an API: the address that its paths follow; empty: the first server of its document.', max_length=200, validators=[llm.models.provider.validate_base_url], verbose_name='URL'),
        ),
        migrations.AlterField(
            model_name='toolserver',
            name='kind',
            field=models.CharField(choices=[('http', 'Streamable HTTP'), ('sse', 'HTTP with SSE (the older transport)'), ('stdio', 'A process of this machine (stdio)'), ('openapi', 'An API with an OpenAPI document')], default='http', max_length=20),
        ),
        migrations.AddConstraint(
            model_name='toolserver',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('base_url', ''), ('kind__in', ['http', 'sse', 'openapi']), _negated=True), models.Q(('command', ''), ('kind', 'stdio'), _negated=True)), name='tool_server_reachable', violation_error_message='Enter the URL of a server, or the command of a process.'),
        ),
        migrations.CreateModel(
            name='OpenApiDocument',
            fields=[
                ('server', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='document', serialize=False, to='llm.toolserver')),
                ('title', models.CharField(blank=True, max_length=400)),
                ('address', models.CharField(blank=True, help_text='Where it was fetched; empty if uploaded.', max_length=2000)),
                ('content', models.TextField()),
                ('operations', models.JSONField(default=list)),
                ('updated', models.DateTimeField(auto_now=True)),
            ],
            options={
                'verbose_name': 'OpenAPI document',
            },
        ),
    ]
