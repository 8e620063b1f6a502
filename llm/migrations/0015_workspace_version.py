import uuid

from django.db import migrations, models

FUNCTION = """
CREATE FUNCTION workspace_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO llm_workspaceversion (id, version) VALUES (1, gen_random_uuid())
    ON CONFLICT (id) DO UPDATE SET version = EXCLUDED.version;
    RETURN NULL;
END $$;
INSERT INTO llm_workspaceversion (id, version) VALUES (1, gen_random_uuid());
"""
PROVIDERS = """
CREATE TRIGGER workspace_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON llm_provider
FOR EACH STATEMENT EXECUTE FUNCTION workspace_changed();
"""
# Of a model everything but what every answer teaches; a field that is added later counts by itself.
MODELS = """
CREATE TRIGGER workspace_changed AFTER INSERT OR DELETE OR TRUNCATE ON llm_model
FOR EACH STATEMENT EXECUTE FUNCTION workspace_changed();
CREATE TRIGGER workspace_changed_by_update AFTER UPDATE ON llm_model FOR EACH ROW WHEN (
    to_jsonb(OLD) - ARRAY['token_ratio', 'ratio_samples', 'reads']
    IS DISTINCT FROM to_jsonb(NEW) - ARRAY['token_ratio', 'ratio_samples', 'reads']
) EXECUTE FUNCTION workspace_changed();
"""
BACK = """
DROP TRIGGER workspace_changed_by_update ON llm_model;
DROP TRIGGER workspace_changed ON llm_model;
DROP TRIGGER workspace_changed ON llm_provider;
DROP FUNCTION workspace_changed;
"""


class Migration(migrations.Migration):
    dependencies = [("llm", "0014_web_access")]

    operations = [
        migrations.CreateModel(
            name="WorkspaceVersion",
            fields=[
                (
                    "id",
                    models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False),
                ),
                ("version", models.UUIDField(default=uuid.uuid4)),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="one_workspace_version")],
            },
        ),
        migrations.RunSQL(FUNCTION + PROVIDERS + MODELS, BACK),
    ]
