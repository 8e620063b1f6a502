from pathlib import Path

from django.core.management import call_command


def test_the_apis_description_is_valid_without_warnings(tmp_path: Path) -> None:
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(tmp_path / "schema.yml"))
