from typing import ClassVar

from django.db import migrations

TRIGGER = """
CREATE TRIGGER workspace_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON files_embedder
FOR EACH STATEMENT EXECUTE FUNCTION workspace_changed();
"""


class Migration(migrations.Migration):
    """Processes keep the rows of embedders, see `llm.models.workspace`."""

    dependencies: ClassVar = [("files", "0005_rerankers"), ("llm", "0015_workspace_version")]
    operations: ClassVar = [migrations.RunSQL(TRIGGER, "DROP TRIGGER workspace_changed ON files_embedder;")]
