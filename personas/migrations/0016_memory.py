import django.core.validators
from decimal import Decimal
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('personas', '0015_tool_share'),
    ]

    operations = [
        migrations.AddField(
            model_name='budgetprofile',
            name='memory_most',
            field=models.PositiveIntegerField(db_default=600, default=600, help_text='In tokens: the limit of the share above in large windows.', verbose_name='most tokens for what is remembered'),
        ),
        migrations.AddField(
            model_name='budgetprofile',
            name='memory_share',
            field=models.DecimalField(db_default=Decimal('0.03'), decimal_places=3, default=Decimal('0.03'), help_text='0 to 1, of what a prompt may have. Profiles and pinned facts are always sent.', max_digits=4, validators=[django.core.validators.MinValueValidator(Decimal('0')), django.core.validators.MaxValueValidator(Decimal('1'))], verbose_name='share of the room for what is remembered'),
        ),
        migrations.AddField(
            model_name='persona',
            name='memory',
            field=models.BooleanField(db_default=True, default=True, help_text='Whether its prompts have what is remembered about the person who asks.'),
        ),
    ]
