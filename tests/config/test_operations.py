"""What operators are told of variables is what the settings read."""

import re

from django.conf import settings

README = (settings.BASE_DIR / "README.md").read_text()
GUIDE = (settings.BASE_DIR / "docs" / "operations.md").read_text()
READ = re.compile(r'\benv\.\w+\(\s*"([A-Z_]+)"')
NAMED = re.compile(r"`([A-Z]+(?:_[A-Z]+)+)(?:=[^`]*)?`")
ELSEWHERE = {"DATA_DIR", "ADMIN_USERNAME", "ADMIN_PASSWORD"}  # read before the settings, and by the first start
OURS_ALONE = {"BUNDLED_MODEL_URL", "BUNDLED_MODEL_KEY"}  # what `manage.py up` tells its processes


def test_every_variable_of_the_settings_stands_in_the_table_and_no_other_in_the_guide() -> None:
    read = set(READ.findall((settings.BASE_DIR / "config" / "settings.py").read_text()))
    table = "".join(line for line in README.splitlines(keepends=True) if line.startswith("| `"))
    assert {name for name in read - OURS_ALONE if f"`{name}`" not in table} == set()
    assert set(NAMED.findall(GUIDE)) <= read | ELSEWHERE
