import json

from django.db import migrations


def rewrite(apps, schema_editor):
    """Calls of search_files were stored as {"queries": […]}, which the tool itself refuses; now as {"query", "variants"}.

    What the changed messages cost is counted anew when they are next read.
    """
    Message = apps.get_model("chat", "Message")
    calls = Message.objects.filter(parts__contains=[{"type": "tool_call", "name": "search_files"}])
    for message in calls.only("parts", "tokens").iterator(500):
        changed = [part for part in message.parts if _rewritten(part)]
        if changed:
            message.tokens = {}
            message.save(update_fields=["parts", "tokens"])


def _rewritten(part):
    if part.get("type") != "tool_call" or part.get("name") != "search_files":
        return False
    try:
        queries = json.loads(part.get("arguments") or "null")["queries"]
        query, *variants = [each for each in queries if isinstance(each, str)]
    except (ValueError, TypeError, KeyError):
        return False
    used = {"query": query, "variants": variants} if variants else {"query": query}
    part["arguments"] = json.dumps(used, ensure_ascii=False)
    return True


class Migration(migrations.Migration):
    dependencies = [("chat", "0021_runs_of_the_server")]

    operations = [migrations.RunPython(rewrite, migrations.RunPython.noop)]
