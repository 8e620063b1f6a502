"""Variables in system prompts and instructions."""

import pytest

from core.errors import ProductError
from personas.variables import VARIABLES, VARIABLES_HELP, check_variables, fill_variables
from projects.admin import INSTRUCTIONS


def test_a_variable_is_replaced_once() -> None:
    values = {"user.name": "{{date}}", "date": "2026-11-21"}
    assert fill_variables("{{ user.name }} on {{date}}", values) == "{{date}} on 2026-11-21"


def test_what_is_no_variable_stays_as_it_is_written() -> None:
    assert fill_variables("{{name}} {date} {{}}", {"date": "2026-11-21"}) == "{{name}} {date} {{}}"


def test_a_backslash_keeps_the_braces() -> None:
    check_variables(r"\{{name}}")
    assert fill_variables(r"\{{date}}", {"date": "2026-11-21"}) == "{{date}}"


def test_an_unknown_variable_is_refused_by_name_with_those_that_exist() -> None:
    with pytest.raises(ProductError, match="variable_unknown") as refused:
        check_variables("Dear {{user.nam}}")
    assert "{{user.nam}}" in refused.value.detail and all(name in refused.value.detail for name in VARIABLES)


def test_the_admin_lists_all_variables_at_the_fields_of_instructions() -> None:
    for text in (VARIABLES_HELP, INSTRUCTIONS):
        assert [name for name in VARIABLES if f"{{{{{name}}}}}" not in text] == []


def test_a_long_text_of_braces_takes_no_time() -> None:
    text = "{{" * 50_000 + "{{date " * 20_000
    assert fill_variables(text, {"date": "2026-11-21"}) == text
