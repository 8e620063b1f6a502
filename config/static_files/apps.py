from django.contrib.staticfiles.apps import StaticFilesConfig


class CollectedFilesConfig(StaticFilesConfig):
    """Leaves out what no page asks for: source maps, and what packages bring for pages that are not shown here."""

    ignore_patterns = [*StaticFilesConfig.ignore_patterns, "*.map", "redoc", "rest_framework"]  # noqa: RUF012 - declared by Django
