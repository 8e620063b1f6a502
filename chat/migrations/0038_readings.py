import django.db.models.deletion
import uuid_utils.compat
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0037_sums_of_people'),
        ('files', '0005_rerankers'),
        ('llm', '0016_labels'),
        ('personas', '0011_shared_prompts'),
        ('projects', '0005_web_access'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ReadingPart',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('level', models.PositiveSmallIntegerField(default=0)),
                ('start', models.PositiveIntegerField()),
                ('end', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('waiting', 'Not read yet'), ('done', 'Read'), ('failed', 'Not read')], default='waiting', max_length=10)),
                ('findings', models.TextField(blank=True)),
                ('tokens', models.PositiveIntegerField(default=0)),
                ('cut_off', models.BooleanField(default=False)),
                ('code', models.CharField(blank=True, max_length=60)),
                ('detail', models.TextField(blank=True)),
            ],
            options={
                'ordering': ['level', 'start'],
            },
        ),
        migrations.AlterField(
            model_name='modelcall',
            name='purpose',
            field=models.CharField(choices=[('answer', 'Answer'), ('run', 'Run'), ('summary', 'Summary'), ('title', 'Title'), ('replay', 'Prompt lab'), ('citations', 'Check of citations'), ('reading', 'Pages read'), ('full_read', 'Reading of a whole file')], max_length=10),
        ),
        migrations.CreateModel(
            name='Reading',
            fields=[
                ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                ('file_name', models.CharField(max_length=255)),
                ('question', models.TextField()),
                ('model_name', models.CharField(max_length=200)),
                ('status', models.CharField(choices=[('queued', 'Waiting'), ('running', 'Reading'), ('done', 'Done'), ('stopped', 'Stopped'), ('failed', 'Failed')], default='queued', max_length=10)),
                ('passages', models.JSONField(default=list)),
                ('text_sha256', models.CharField(max_length=64)),
                ('calls', models.PositiveIntegerField()),
                ('tokens', models.PositiveBigIntegerField()),
                ('cost', models.DecimalField(decimal_places=12, max_digits=26, null=True)),
                ('asked', models.PositiveIntegerField(default=0)),
                ('only_answer', models.BooleanField(default=False)),
                ('answer', models.TextField(blank=True)),
                ('code', models.CharField(blank=True, max_length=60)),
                ('detail', models.TextField(blank=True)),
                ('attempt', models.PositiveIntegerField(default=0)),
                ('tries', models.PositiveIntegerField(default=0)),
                ('heartbeat', models.DateTimeField(auto_now_add=True)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('finished', models.DateTimeField(blank=True, null=True)),
                ('conversation', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='readings', to='chat.conversation')),
                ('file', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='files.file')),
                ('model', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='llm.model')),
                ('person', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='readings', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddField(
            model_name='modelcall',
            name='reading',
            field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='chat.reading'),
        ),
        migrations.AddField(
            model_name='readingpart',
            name='reading',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='chat.reading'),
        ),
        migrations.AddIndex(
            model_name='reading',
            index=models.Index(condition=models.Q(('status__in', ['queued', 'running'])), fields=['heartbeat'], name='reading_live_heartbeat'),
        ),
        migrations.AddConstraint(
            model_name='readingpart',
            constraint=models.UniqueConstraint(fields=('reading', 'level', 'start'), name='one_part_of_a_reading_from_a_place'),
        ),
    ]
