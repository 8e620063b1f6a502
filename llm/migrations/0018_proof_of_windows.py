"""Learnt limits have evidence. Windows that were learnt before are dropped.

A window could be learnt from one low count, and the row does not tell such a window from one that a refusal named. A
server that really has a smaller one names it with its next refusal.

The previous version reads and writes `reads` while it still runs, so the column stays, with a default, for a later
version to drop. What every answer teaches makes no new version of the workspace, so the trigger leaves it out.
"""

from typing import ClassVar

import django.core.validators
from django.db import migrations, models

TRIGGER = """
DROP TRIGGER workspace_changed_by_update ON llm_model;
CREATE TRIGGER workspace_changed_by_update AFTER UPDATE ON llm_model FOR EACH ROW WHEN (
    to_jsonb(OLD) - ARRAY[{learnt}] IS DISTINCT FROM to_jsonb(NEW) - ARRAY[{learnt}]
) EXECUTE FUNCTION workspace_changed();
"""
BEFORE = "'token_ratio', 'ratio_samples', 'reads'"
AFTER = f"{BEFORE}, 'reported_counts'"


class Migration(migrations.Migration):
    dependencies: ClassVar = [("llm", "0017_tool_limits")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="model",
            name="window_evidence",
            field=models.JSONField(db_default={}, default=dict, editable=False),
        ),
        migrations.AddField(
            model_name="model",
            name="max_images",
            field=models.PositiveSmallIntegerField(
                blank=True,
                help_text="Of one prompt, all messages together; older ones are left out. Empty: no limit is known.",
                null=True,
                validators=[django.core.validators.MinValueValidator(1)],
                verbose_name="most images",
            ),
        ),
        migrations.AddField(
            model_name="model",
            name="learnt_max_images",
            field=models.PositiveSmallIntegerField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="model",
            name="images_evidence",
            field=models.JSONField(db_default={}, default=dict, editable=False),
        ),
        migrations.AddField(
            model_name="model",
            name="reported_counts",
            field=models.JSONField(db_default={}, default=dict, editable=False),
        ),
        migrations.AlterField(
            model_name="model",
            name="learnt_window",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="A smaller window than the row's, which its server has proven to have.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="model",
            name="reads",
            field=models.JSONField(db_default=[], default=list, editable=False),
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[migrations.RemoveField(model_name="model", name="reads")],
        ),
        migrations.RunSQL(TRIGGER.format(learnt=AFTER), TRIGGER.format(learnt=BEFORE)),
        migrations.RunSQL(
            "UPDATE llm_model SET learnt_window = NULL WHERE learnt_window IS NOT NULL", migrations.RunSQL.noop
        ),
    ]
