from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0018_plain_help_texts'),
    ]

    operations = [
        migrations.AddField(
            model_name='workspace',
            name='about',
            field=models.CharField(blank=True, db_default='', default='', help_text="One sentence on the sign-in page and above a person's first message. Empty: a general one.", max_length=200, verbose_name='what it is for'),
        ),
        migrations.AddField(
            model_name='workspace',
            name='suggestions',
            field=models.TextField(blank=True, db_default='', default='', help_text='Messages that a click writes into the field, one a line, at most four. Empty: general ones.', max_length=808, verbose_name='suggestions on the empty page'),
        ),
    ]
