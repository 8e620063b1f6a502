from django.db import migrations

TABLES = ("personas_budgetprofile", "personas_systemprompt")
TRIGGER = """
CREATE TRIGGER workspace_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {0}
FOR EACH STATEMENT EXECUTE FUNCTION workspace_changed();
"""


class Migration(migrations.Migration):
    dependencies = [("llm", "0015_workspace_version"), ("personas", "0007_effort_of_reasoning")]

    operations = [
        migrations.RunSQL(TRIGGER.format(table), f"DROP TRIGGER workspace_changed ON {table};") for table in TABLES
    ]
