from decimal import Decimal

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('personas', '0014_plain_help_texts'),
    ]

    operations = [
        migrations.AddField(
            model_name='budgetprofile',
            name='tool_share',
            field=models.DecimalField(db_default=Decimal('0.1'), decimal_places=3, default=Decimal('0.1'), help_text='0 to 1. Above it they are listed by name, and the model loads those that it needs.', max_digits=4, validators=[django.core.validators.MinValueValidator(Decimal('0')), django.core.validators.MaxValueValidator(Decimal('1'))], verbose_name='share of the room up to which tools of servers are defined whole'),
        ),
    ]
