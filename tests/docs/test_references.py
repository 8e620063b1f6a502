"""Each setting, command and endpoint is named in its reference, and the references name nothing that is gone."""

import re
from collections import Counter
from pathlib import Path

import pytest
from django.core.management import get_commands

from scripts.docs import endpoints, variables
from scripts.docs.pages import DOCS, generated

VARIABLE = re.compile(r"`([A-Z]+(?:_[A-Z]+)+)(?:=[^`]*)?`")
OTHER_VARIABLES = {
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "PROVIDER_API_KEY", "NAME_FILE", "BENCH_PEERS", "SEARXNG_SECRET"),
}
OURS = {"accounts", "chat", "config", "core", "files", "llm", "personas", "projects", "workspace"}
OPENAI = (
    *("GET /v1/models", "GET /v1/models/{name}", "POST /v1/chat/completions", "POST /v1/responses"),
    *("POST /v1/embeddings", "POST /v1/files", "GET /v1/files", "GET /v1/files/{id}", "DELETE /v1/files/{id}"),
    "GET /v1/files/{id}/content",
)
ANTHROPIC = ("POST /v1/messages", "POST /v1/messages/count_tokens", "GET /v1/models")
OPERATORS = [*sorted((DOCS / "operate").glob("*.md")), *sorted((DOCS / "admin").glob("*.md"))]


@pytest.mark.parametrize("page", generated(), ids=lambda page: page.name)
def test_generated_tables_are_those_of_the_code(page: Path) -> None:
    assert page.read_text() == generated()[page], "run python -m scripts.docs"


def test_each_variable_has_one_meaning() -> None:
    read = set(variables.defaults()) | variables.READ_ELSEWHERE
    names = Counter(name for rows in variables.SECTIONS.values() for row in rows for name in row.names)
    assert (read - variables.INTERNAL, [name for name, count in names.items() if count > 1]) == (set(names), [])


@pytest.mark.parametrize("page", OPERATORS, ids=lambda page: page.name)
def test_guides_name_variables_that_there_are(page: Path) -> None:
    assert set(VARIABLE.findall(page.read_text())) <= variables.documented() | OTHER_VARIABLES


def test_each_command_is_in_the_reference() -> None:
    ours = {name for name, app in get_commands().items() if app.partition(".")[0] in OURS}
    text = (DOCS / "operate" / "commands.md").read_text().partition("## make")[0]
    cells = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    assert {command.split()[0] for cell in cells for command in re.findall(r"`(.+?)`", cell)} == ours


@pytest.mark.parametrize(("page", "endpoints_of"), [("openai.md", OPENAI), ("anthropic.md", ANTHROPIC)])
def test_each_endpoint_of_the_protocols_is_in_the_reference(page: str, endpoints_of: tuple[str, ...]) -> None:
    text = (DOCS / "api" / page).read_text()
    assert [endpoint for endpoint in endpoints_of if f"| `{endpoint}` |" not in text] == []


def test_pages_of_the_api_name_endpoints_that_there_are() -> None:
    paths = {re.sub(r"\{\w+\}", "<>", path) for path in endpoints.paths()}
    paths |= {"/api/v1/", "/api/v1/schema/", "/api/v1/asyncapi/"}
    named = {
        re.sub(r"<[^>]*>|\$\w+", "<>", path)
        for page in (DOCS / "api").glob("*.md")
        if page.name != "endpoints.md"
        for path in re.findall(r"/api/v1/[\w$<>./-]*", page.read_text())
    }
    assert named - paths == set()
