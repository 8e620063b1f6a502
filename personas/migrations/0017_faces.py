"""Faces: the icon and the colour by which people recognise a persona."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('personas', '0016_memory'),
    ]

    operations = [
        migrations.AddField(
            model_name='persona',
            name='colour',
            field=models.CharField(blank=True, choices=[('', 'Automatic'), ('red', 'Red'), ('orange', 'Orange'), ('olive', 'Olive'), ('green', 'Green'), ('teal', 'Teal'), ('blue', 'Blue'), ('violet', 'Violet'), ('pink', 'Pink')], db_default='', default='', max_length=10),
        ),
        migrations.AddField(
            model_name='persona',
            name='icon',
            field=models.CharField(blank=True, choices=[('', 'First letter of the name'), ('model', 'Spark'), ('bolt', 'Bolt'), ('star', 'Star'), ('heart', 'Heart'), ('leaf', 'Leaf'), ('globe', 'Globe'), ('home', 'House'), ('flag', 'Flag'), ('folder', 'Folder'), ('file', 'Sheet'), ('book', 'Book'), ('cap', 'Mortarboard'), ('scales', 'Scales'), ('chart', 'Chart'), ('flask', 'Flask'), ('wrench', 'Wrench'), ('code', 'Code'), ('write', 'Pen'), ('chat', 'Speech'), ('mail', 'Letter in an envelope'), ('image', 'Picture'), ('persona', 'Person'), ('task', 'Tick'), ('lock', 'Lock'), ('search', 'Magnifying glass'), ('hourglass', 'Hourglass')], db_default='', default='', max_length=20),
        ),
    ]
