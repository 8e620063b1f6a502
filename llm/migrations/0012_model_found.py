from django.db import migrations, models

from llm.known_models import suggest

UNKNOWN = {
    "context_window": 4096,
    "max_output": None,
    "input_price": None,
    "output_price": None,
    "cached_input_price": None,
    "cache_write_price": None,
    "vision": False,
    "tools": False,
}


def keep_what_was_set(apps, schema_editor):
    """What is other than a new row would have it has been set by an admin, and stays."""
    for model in apps.get_model("llm", "Model").objects.select_related("provider"):
        known = suggest(model.provider.kind, model.name, base_url=model.provider.base_url)
        by_hand = []
        for name, unknown in UNKNOWN.items():
            suggested = getattr(known, "window" if name == "context_window" else name, None)
            # A new row had what is known; but rows are older than the prices of the cache.
            assumed = {suggested, None} if name.startswith("cache") else {unknown if suggested is None else suggested}
            if getattr(model, name) not in assumed:
                by_hand.append(name)
        model.set_by_hand = sorted(by_hand)
        model.reasoning = bool(getattr(known, "reasoning", None))
        model.save(update_fields=["set_by_hand", "reasoning"])


class Migration(migrations.Migration):

    dependencies = [
        ("llm", "0011_reads"),
    ]

    operations = [
        migrations.AddField(
            model_name="model",
            name="found",
            field=models.JSONField(default=dict, editable=False),
        ),
        migrations.AddField(
            model_name="model",
            name="found_at",
            field=models.DateTimeField(editable=False, null=True, verbose_name="found"),
        ),
        migrations.AddField(
            model_name="model",
            name="reasoning",
            field=models.BooleanField(default=False, help_text="It can reason before it answers."),
        ),
        migrations.AddField(
            model_name="model",
            name="retires_on",
            field=models.DateField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="model",
            name="set_by_hand",
            field=models.JSONField(default=list, editable=False),
        ),
        migrations.RunPython(keep_what_was_set, migrations.RunPython.noop),
    ]
