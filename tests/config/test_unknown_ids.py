"""A name that nothing has, as a filter of a list, gives an empty list: it neither shows everything nor fails."""

from typing import Any
from uuid import uuid4

from drf_spectacular.generators import SchemaGenerator

from tests.accounts.programs import Program
from tests.config.household import Household

# Filters that name something else than a row, or where what is asked of a row is no list.
NO_ROWS = {
    "by",
    "of",
    "origin",
    "action",
    "level",
    "status",
    "horizon",
    "proposed",
    "kind",
    "q",
    "after",
    "page",
    "format",
}
DATES = {"date", "from", "to", "since", "until"}
NO_LISTS = {"/api/v1/max-selected-document-tokens/"}
UNKNOWN = {"code": "D2031-01-01-T01"}
PAGES = {"cursor", "page_size", "search"}


def described() -> list[tuple[str, str, Any]]:
    """Return path, name and schema of each parameter of each list of the API, as its description has them."""
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return [
        (path, parameter["name"], parameter["schema"])
        for path, operations in document["paths"].items()
        for parameter in operations.get("get", {}).get("parameters", ())
        if parameter["in"] == "query" and "{" not in path and path not in NO_LISTS
    ]


def filters() -> list[tuple[str, str, str]]:
    """Return path and name of each filter that names a row, with a value that no row has."""
    return [
        (path, name, str(uuid4()) if schema.get("format") == "uuid" else UNKNOWN.get(name, uuid4().hex))
        for path, name, schema in described()
        if name not in NO_ROWS | DATES | PAGES or (schema.get("format") == "uuid" and name != "after")
    ]


def test_a_filter_by_what_nothing_has_gives_an_empty_list(household: Household) -> None:
    owner = next(row.owner for row in household.rows if hasattr(row, "owner"))
    owner.is_staff = owner.is_superuser = True
    owner.save()
    client = Program(owner, "chat", "files", "projects", "tasks", "admin").client
    all_filters = filters()
    assert len(all_filters) > 8
    wrong = []
    for path, name, value in all_filters:
        more = {"q": "harbour"} if path == "/api/v1/search/" else {}
        answer = client.get(path, {**more, name: value})
        rows = answer.json().get("results") if answer.status_code == 200 else None
        if rows != []:
            wrong.append((path, name, answer.status_code, answer.content[:200]))
    assert wrong == []
