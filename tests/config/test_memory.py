"""No request makes a process of the product grow by more than a bound, and the memory of work is given back.

The walks take addresses from the description of the API and from the URLconf, so new ones are covered.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.conf import settings

from accounts.models import ApiToken, User
from accounts.services import create_token
from tests.config.household import Household, signed_in
from tests.config.memory import Gauge
from tests.config.test_fuzz import description
from tests.conftest import Person
from tests.product import ROOT, Product, until

pytestmark = pytest.mark.product

MAX_COUNT = 150_000_000  # bytes by which a process may grow
BODY = 7_800_000  # bytes, somewhat less than a request may have
RETURNED = 1.3  # of its memory before, a process may have after a job
# Short words are many for their bytes, and one character outside of the basic plane makes each take four bytes.
TEXT = "ab " * (BODY // 3 - 10) + "😀"
JSON = {"Content-Type": "application/json"}
FORM = "application/x-www-form-urlencoded"
# They read no body, or end the session of the walk.
PASSED_OVER = ("/api/", "/v1/", "/logout/", "/admin/logout/")


def filled_with(values: str) -> bytes:
    """Return the largest body that has nothing but these in a list."""
    return f'{{"x":[{values * (BODY // len(values.encode()))}0]}}'.encode()


# Of every kind of value the smallest, and the deepest nesting.
VALUES = {
    "lists": filled_with("[],"),
    "objects": filled_with("{},"),
    "members": filled_with('{"":0},'),
    "texts": filled_with('"Ā",'),
    "numbers": filled_with("1.5,"),
    "names": b"{" + b",".join(b'"%x":0' % number for number in range(BODY // 11)) + b"}",
    "depth": b"[" * (BODY // 2) + b"]" * (BODY // 2),
}


@pytest.fixture
def owner(household: Household) -> User:
    """An ordinary person: with more rights the walks would fill texts and settings that other tests need."""
    return next(row for row in household.rows if isinstance(row, User))


@pytest.fixture
def program(product: Product, owner: User) -> Iterator[httpx.Client]:
    """Yield a client for the household's owner, after the bundled embedder has been loaded."""
    token = create_token(user=owner, name="large", scopes=ApiToken.SCOPES)[1]
    with product.http(headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"}) as http:
        for few in ("a word", [1, 2]):
            assert http.post("/v1/embeddings", json={"model": "bundled", "input": few}).status_code == 200
        yield http


def largest(schema: Any, left: int, name: str = "", seen: tuple[str, ...] = ()) -> Any:
    """Return a value of a schema with texts and lists as long as it permits, with at most `left` characters each.

    Returns None for an id and for a text with a format, which are short.
    """
    while "$ref" in schema or any(kind in schema for kind in ("oneOf", "anyOf", "allOf")):
        if "$ref" in schema:
            of = schema["$ref"].rpartition("/")[2]
            if of in seen:
                return None
            seen, schema = (*seen, of), components()[of]
        else:
            schema = (schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf"))[0]
    kinds = schema.get("type")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "properties" in schema:
        writable = {key: of for key, of in schema["properties"].items() if not of.get("readOnly")}
        values = {key: largest(of, left // len(writable), key, seen) for key, of in writable.items()}
        return {key: value for key, value in values.items() if value is not None}
    if kind == "array":
        short = largest(schema["items"], 30, name, seen)
        most = left // (len(json.dumps(short)) + 2)
        return None if short is None else [short] * min(schema.get("maxItems", most), most)
    if kind == "string" and "format" not in schema:
        return TEXT[-min(schema.get("maxLength", left), left) :]
    return None


@cache
def components() -> Any:
    return description()["components"]["schemas"]


def operations(household: Household) -> Iterator[tuple[str, str, Any]]:
    """Yield method, address and schema of each operation of the API that takes JSON."""
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                yield method.upper(), address(path, household.values), content["application/json"]["schema"]


def address(path: str, values: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        segment, name = path[: match.start()].rstrip("/").rpartition("/")[2], match[1]
        keys = (f"{segment}/{'pk' if name == 'id' else name}", f"{segment}/{name}", name)
        return next(values[key] for key in keys if key in values)

    return re.sub(r"\{(\w+)\}", value, path)


def send(http: httpx.Client, gauge: Gauge, method: str, url: str, body: bytes) -> list[str]:
    """Return a line for each process that grew by more than it may."""
    gauge.begin()
    http.request(method, url, content=body)
    wrong = [f"{name} by {size // 1_000_000} MB" for name, size in gauge.growth().items() if size > MAX_COUNT]
    return [f"{method} {url}, {body[:30]!r}: {each}" for each in wrong]


def test_the_largest_body_of_every_operation_is_bounded_work(
    product: Product, program: httpx.Client, household: Household
) -> None:
    gauge, wrong, count = Gauge(product), list[str](), 0
    shapes = list(VALUES.values())
    for method, url, schema in operations(household):
        body = json.dumps(largest(schema, BODY), ensure_ascii=False).encode()
        wrong += send(program, gauge, method, url, body)
        if count % 3 == 0:  # all are parsed alike: every third has one of the shapes of values
            wrong += send(program, gauge, method, url, shapes[count // 3 % len(shapes)])
        count += 1
    assert count > 50
    assert not wrong, "\n".join(wrong)


def conversations() -> Iterator[tuple[str, Any]]:
    """Yield address and body of the largest requests of the two protocols."""
    chat, runs, embeddings = "/v1/chat/completions", "/api/v1/ag-ui/", "/v1/embeddings"

    def messages(*contents: Any) -> list[Any]:
        roles = ("user", "assistant")
        return [{"id": f"m{at}", "role": roles[at % 2], "content": content} for at, content in enumerate(contents)]

    def run(**members: Any) -> dict[str, Any]:
        empty: dict[str, Any] = {"state": None, "tools": [], "context": [], "forwardedProps": {}}
        return {"threadId": str(uuid4()), "runId": str(uuid4()), **empty, **members}

    parts = [{"type": "text", "text": "ab " * (BODY // 2_048 // 3 - 12)}] * 2_048
    for text in (TEXT, parts):
        yield chat, {"model": "scripted", "messages": messages(text)}
    for number in (9_999, 50_001):
        yield chat, {"model": "scripted", "messages": messages(*["ab " * (BODY // number // 3 - 20)] * number)}
        yield runs, run(messages=messages(*["ab"] * number))
    yield runs, run(messages=messages(TEXT[-1_000_000:]))
    yield runs, run(messages=messages("Hi"), state={"text": TEXT[100:]})
    yield runs, run(messages=messages("Hi"), context=[{"description": "a", "value": "b"}] * 27_000)
    yield embeddings, {"model": "bundled", "input": TEXT}
    yield embeddings, {"model": "bundled", "input": ["ab " * 300] * 2_048}
    yield embeddings, {"model": "bundled", "input": [list(range(100, 8_000))] * 40}


def test_the_longest_conversations_and_inputs_are_bounded_work(product: Product, program: httpx.Client) -> None:
    gauge, wrong = Gauge(product), list[str]()
    for url, body in conversations():
        wrong += send(program, gauge, "POST", url, json.dumps(body, ensure_ascii=False).encode())
    assert not wrong, "\n".join(wrong)


def test_the_largest_form_of_every_page_is_bounded_work(product: Product, owner: User, household: Household) -> None:
    names = {name for page in (ROOT / "templates").rglob("*.html") for name in FIELD.findall(page.read_text())}
    share = "ab+" * (BODY // 3 // len(names))
    body = "&".join(f"{name}={share}" for name in sorted(names)).encode()
    token = "a" * 32
    cookies = {"sessionid": str(signed_in(owner).session.session_key), settings.CSRF_COOKIE_NAME: token}
    headers = {"X-CSRFToken": token, "Origin": product.url, "Content-Type": FORM}
    gauge, wrong, count = Gauge(product), list[str](), 0
    with product.http(cookies=cookies, headers=headers) as http:
        for page in household.addresses():
            if page.admin or page.url.startswith(PASSED_OVER):
                continue
            if "POST" not in http.options(page.url).headers.get("Allow", "POST"):
                continue
            wrong += send(http, gauge, "POST", page.url, body)
            count += 1
    assert count > 100
    assert not wrong, "\n".join(wrong)


FIELD = re.compile(r'name="([a-z_]+)"')


def test_the_web_process_has_workers_embed_and_search(product: Product, person: Person, program: httpx.Client) -> None:
    """The web process never loads the embedder with its large libraries."""
    project = person.caller.post("projects/", {"name": "Embedded elsewhere"}, 201)["id"]
    sent = {"file": ("near.txt", b"The puppy is barking.")}
    file = person.caller.http.post("files/", files=sent).raise_for_status().json()["id"]
    until(lambda: person.caller.get(f"files/{file}/")["searchable"], "the file is searchable")
    person.caller.post(f"projects/{project}/files/", {"file": file}, 201)
    answer = person.caller.post(f"projects/{project}/search/", {"query": "a dog that makes noise"}, 200)
    assert [hit["title"] for hit in answer["results"]] == ["near.txt"] and answer["notes"] == []
    loaded = {
        name: "wordllama" in Path(f"/proc/{process.pid}/maps").read_text()
        for name, process in product.processes.items()
    }
    assert loaded == {"web": False, "worker": True, "beat": False}


def rows_of_a_table(number: int) -> bytes:
    """Return a CSV with about 28 tokens a row."""
    rows = (
        f"{at},harbour {at * 7919 % 10**6},{at / 7:.4f},customer {at * 7},2026-01-{at % 28 + 1:02d}"
        for at in range(number)
    )
    return "\n".join(rows).encode()


def test_memory_is_given_back_after_jobs(product: Product, person: Person) -> None:
    gauge = Gauge(product)

    def index(name: str, number: int) -> None:
        answer = person.caller.http.post("files/", files={"file": (name, rows_of_a_table(number))})
        assert answer.status_code == 201, answer.text
        where = f"files/{answer.json()['id']}/"
        until(lambda: person.caller.get(where)["searchable"], f"{name} is searchable")

    index("first.csv", 100)  # loads the embedder
    before = gauge.resident()
    index("large.csv", 22_000)
    for _ in range(3):
        person.caller.http.post(
            "conversations/", content=VALUES["members"], headers={"Content-Type": "application/json"}
        )

    def given_back() -> bool:
        return all(size <= RETURNED * before[name] for name, size in gauge.resident().items())

    until(given_back, "the memory of all processes is given back")
