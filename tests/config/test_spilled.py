"""Logs of a product's processes while people and programs use it, with every kind of secret and private text.

At the end of a run, `product` in tests/conftest.py checks all logs of the tests' product in the same way.
"""

import json
from uuid import uuid4

import pytest

from tests.conftest import Person
from tests.product import Product, until
from tests.spilled import SECRETS, lines, spilled

TIMES = 12


@pytest.mark.parametrize(
    "line",
    [
        "Bearer gh_akYZ5vXNIMggEX8JDXZR6iKL5J",
        "GET /s/akYZ5vXNIMggEX8JDXZR6iKL5J/",
        "GET /search/?q=word",
        "Cookie: sessionid=akYZ5vXNIMggEX8JDXZR",
        'said: hi\\nscript: {\\"text\\"',
        "key secret-of-the-scripted-provider",
    ],
)
def test_a_secret_would_be_noticed(line: str) -> None:
    assert SECRETS.search(line)


@pytest.mark.parametrize("line", ["GET /search/?…", "GET /s/…/", "Bearer gh_…", "Is it there? Really?"])
def test_what_is_left_out_is_none(line: str) -> None:
    assert not SECRETS.search(line)


@pytest.mark.product
def test_nothing_that_was_said_searched_shared_or_signed_in_with_is_logged_and_one_id_finds_all_lines(
    product: Product, person: Person
) -> None:
    mark, request_id, failed = f"mark{uuid4().hex}", uuid4().hex, uuid4().hex
    caller = person.caller
    places = [caller.conversation() for _ in range(TIMES)]
    failing = json.dumps({"error": {"status": 400, "message": f"no {mark}"}})
    for number, place in enumerate(places):
        script = failing if number % 3 == 2 else json.dumps({"text": f"An answer of {mark}."})
        body = {"text": f"{mark} {number}\nscript: {script}"}
        turn = caller.post(f"conversations/{place}/turns/", body, 202, **{"X-Request-ID": request_id})["turns"][0]
        caller.ended(turn["id"])
        caller.get(f"search/?q={mark}")
        shared = caller.post(f"conversations/{place}/shares/", expect=201)
        with product.http() as stranger:
            assert stranger.get(shared["url"]).status_code == 200
            assert stranger.get(f"/s/{mark}{uuid4().hex}/?{mark}={mark}").status_code == 404
            stranger.get("/login/")
            form = {"username": f"{person.username}{mark}", "password": mark}
            token = {"csrfmiddlewaretoken": stranger.cookies.get("csrftoken", ""), **form}
            stranger.post("/login/", data=token, headers={"Referer": product.url})
        caller.http.post("files/", files={"file": (f"{mark}.txt", f"It says {mark}.".encode())})
        caller.http.post("files/", files={"file": (f"{mark}.pdf", f"no pdf: {mark}".encode())})
        hook = {"url": f"https://{mark}.example/{mark}?{mark}={mark}", "events": ["turn.finished"]}
        caller.http.post("webhooks/", json=hook)
        caller.http.post("conversations/none/turns/", content=mark.encode(), headers={"X-Request-ID": failed})
        caller.http.get(f"turns/{uuid4()}/?{mark}", headers={"Authorization": f"Bearer gh_{mark}"})
    model = "llm.providers.streaming"
    calls = until(
        lambda: [line for line in lines(product) if request_id in line and model in line], "the call is logged"
    )
    assert len(calls) >= TIMES
    assert any(failed in line for line in lines(product))
    assert any(request_id in line and '"access"' in line for line in lines(product))
    assert spilled(product, mark, person.token) == []
