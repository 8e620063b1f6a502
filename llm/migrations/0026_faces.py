"""Faces: the icon and the colour by which people recognise a model. Search by DuckDuckGo."""

from django.db import migrations, models

import llm.models.provider


class Migration(migrations.Migration):

    dependencies = [
        ('llm', '0025_tool_sign_ins'),
    ]

    operations = [
        migrations.AlterField(
            model_name='websearch',
            name='base_url',
            field=models.CharField(blank=True, help_text='For example http://searxng:8080, with JSON output enabled. Empty: the address of Brave or DuckDuckGo. DuckDuckGo refuses many queries from one address: for a company, use one of the others.', max_length=200, validators=[llm.models.provider.validate_base_url], verbose_name='base URL'),
        ),
        migrations.AlterField(
            model_name='websearch',
            name='kind',
            field=models.CharField(choices=[('searxng', 'SearXNG or compatible'), ('brave', 'Brave Search'), ('duckduckgo', 'DuckDuckGo, without a key')], default='searxng', max_length=20),
        ),
        migrations.AddField(
            model_name='model',
            name='colour',
            field=models.CharField(blank=True, choices=[('', 'Automatic'), ('red', 'Red'), ('orange', 'Orange'), ('olive', 'Olive'), ('green', 'Green'), ('teal', 'Teal'), ('blue', 'Blue'), ('violet', 'Violet'), ('pink', 'Pink')], db_default='', default='', max_length=10),
        ),
        migrations.AlterField(
            model_name='model',
            name='icon',
            field=models.CharField(blank=True, choices=[('', 'First letter of the name'), ('model', 'Spark'), ('bolt', 'Bolt'), ('star', 'Star'), ('heart', 'Heart'), ('leaf', 'Leaf'), ('globe', 'Globe'), ('home', 'House'), ('flag', 'Flag'), ('folder', 'Folder'), ('file', 'Sheet'), ('book', 'Book'), ('cap', 'Mortarboard'), ('scales', 'Scales'), ('chart', 'Chart'), ('flask', 'Flask'), ('wrench', 'Wrench'), ('code', 'Code'), ('write', 'Pen'), ('chat', 'Speech'), ('mail', 'Letter in an envelope'), ('image', 'Picture'), ('persona', 'Person'), ('task', 'Tick'), ('lock', 'Lock'), ('search', 'Magnifying glass'), ('hourglass', 'Hourglass')], db_default='', default='', max_length=20),
        ),
    ]
