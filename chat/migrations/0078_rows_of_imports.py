import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0077_memory'),
    ]

    operations = [
        migrations.AlterField(
            model_name='import',
            name='status',
            field=models.CharField(choices=[('queued', 'Waiting'), ('running', 'Being imported'), ('done', 'Imported'), ('failed', 'Failed'), ('paused', 'Paused'), ('undoing', 'Being undone'), ('undone', 'Undone')], default='queued', max_length=20),
        ),
        migrations.CreateModel(
            name='ImportedRow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('conversation', 'Conversation'), ('file', 'File'), ('persona', 'Persona'), ('project', 'Project'), ('prompt', 'Saved prompt'), ('fact', 'Remembered fact')], max_length=20)),
                ('row', models.UUIDField()),
                ('why', models.TextField(blank=True)),
                ('created', models.DateTimeField()),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rows', to='chat.import')),
            ],
            options={
                'ordering': ['id'],
                'constraints': [models.UniqueConstraint(fields=('job', 'kind', 'row'), name='one_imported_row')],
            },
        ),
    ]
