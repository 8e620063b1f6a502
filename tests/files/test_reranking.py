"""The workspace's re-ranker orders the hits of a search. If it fails, the first order stays."""

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from core.errors import ModelError
from files.index.finding import find_passages
from files.index.reranking import try_reranker
from files.index.search import search
from files.models import File, Reranker
from tests.files.collections import indexed, new_owner
from tests.files.rerankers import JINAS_MODEL, KEY, NOT_ORDERED, ScriptedReranker, refused_by_jina, row_of
from tests.llm.raw_server import answer

FIRST = "falcon falcon falcon garden"
TEXTS = [f"{FIRST} 1 points", "falcon falcon garden 7 points", "falcon island 9 points", "jacket kettle 5 points"]


@pytest.fixture
def files(db: None) -> Any:
    return File.objects.filter(pk=indexed(new_owner(), TEXTS).pk)


def points(hits: list[Any]) -> list[int]:
    return [int(hit.text.split()[-2]) for hit in hits]


@pytest.mark.parametrize("tei", [False, True])
def test_the_order_is_the_rerankers_and_what_it_was_not_given_follows(files: Any, tei: bool) -> None:
    assert points(find_passages(queries=["falcon"], files=files).hits) == [1, 7, 9, 5]
    with ScriptedReranker(tei=tei) as server:
        row_of(server, candidates=3).save()
        result = find_passages(queries=["falcon", "garden"], files=files, limit=10)
        assert (points(result.hits), result.notes) == ([9, 7, 1, 5], ())
        assert [hit.score for hit in result.hits[:3]] == [0.9, 0.7, 0.1] and result.hits[3].score <= 0.1
        assert points(find_passages(queries=["falcon", "garden"], files=files, limit=2).hits) == [9, 7]
        assert [body["query"] for body in server.rank_requests] == ["falcon"], "what it said is kept for a moment"


def test_more_passages_than_it_takes_at_once_come_in_several_requests(db: None) -> None:
    many = File.objects.filter(pk=indexed(new_owner(), [f"falcon {at} points" for at in range(40)]).pk)
    with ScriptedReranker(tei=True) as server:
        row_of(server, candidates=40).save()
        assert points(find_passages(queries=["falcon"], files=many, limit=40).hits) == list(range(39, -1, -1))
        assert sorted(len(body["texts"]) for body in server.rank_requests) == [8, 32]


@pytest.mark.parametrize("kind", ["tei", "llama", "jina"])
def test_a_passage_that_is_too_long_for_it_is_cut_and_the_note_says_so(db: None, kind: str) -> None:
    long = [f"falcon 3 points {'word ' * 700}", "falcon 4 points and no more"]
    file = File.objects.filter(pk=indexed(new_owner(), long).pk)
    with ScriptedReranker(tei=kind == "tei", llama=kind == "llama", jina=kind == "jina") as server:
        row_of(server, longest=900).save()
        result = find_passages(queries=["falcon"], files=file)
        assert [hit.text[7] for hit in result.hits] == ["4", "3"] and 0 < result.hits[0].score < 1
        [note] = result.notes
        assert note.english.startswith("The re-ranker “Ours” read only the first 3")
        assert len(server.rank_requests) == 1 and len(server.bodies) == 2
        Reranker.objects.update(longest=100)
        [note] = find_passages(queries=["falcon"], files=file).notes
        assert note.english.endswith("read only the first 100 tokens of 1 of 2 passages.")


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (answer("{}", status="500 Internal Server Error"), "overloaded"),
        (answer("<p>Welcome</p>"), "is not a model"),
        (answer("[]"), "is not a model"),
        (answer('{"results": [{"index": 0, "relevance_score": 1}]}'), "a broken answer"),
        (answer('{"results": [{"index": "x", "relevance_score": 1}]}'), "is not a model"),
        (answer(json.dumps({"results": 4 * [{"index": 0, "relevance_score": 1}]})), "a broken answer"),
        (
            answer(json.dumps({"results": [{"index": at, "relevance_score": float("nan")} for at in range(4)]})),
            "a broken answer",
        ),
        (None, "did not answer in time"),
    ],
)
def test_a_failure_leaves_the_first_order_and_a_note(files: Any, broken: bytes | None, why: str) -> None:
    first = search(query="falcon", files=files)
    with ScriptedReranker(broken=broken) as server:
        row_of(server, patience=1).save()
        result = find_passages(queries=["falcon"], files=files)
        requests = len(server.heads)
        assert result.hits == first
        [note] = result.notes
        assert note.english.startswith(NOT_ORDERED) and why in note.english
        assert find_passages(queries=["garden"], files=files).notes == (note,)
        assert len(server.heads) == requests, "it is left alone for a moment"


def test_a_server_that_is_away_and_a_key_that_is_wrong_are_named(files: Any) -> None:
    with ScriptedReranker() as server:
        row = row_of(server, api_key="another")
        row.save()
        assert "refused the API key" in find_passages(queries=["falcon"], files=files).notes[0].english
    Reranker.objects.update(api_key=KEY)
    result = find_passages(queries=["falcon"], files=files)
    assert points(result.hits) == [1, 7, 9, 5] and "cannot be reached" in result.notes[0].english


@pytest.mark.parametrize(
    ("status", "code", "message", "why"),
    [
        ("403 Forbidden", "AUTHZ_INSUFFICIENT_BALANCE", "Insufficient account balance", "has no credit left"),
        ("403 Forbidden", "AUTHZ_RESOURCE_LIMIT_EXCEEDED", "Resource limit exceeded for your plan", "no credit left"),
        ("429 Too Many Requests", "RATE_TOKEN_LIMIT_EXCEEDED", "Token rate limit exceeded: 9/8", "too many requests"),
        ("422 Unprocessable Entity", "", "[RID: 1] Validation error: 'body -> top_n' Invalid", "'body -> top_n'"),
    ],
)
def test_what_jina_refuses_is_named(files: Any, status: str, code: str, message: str, why: str) -> None:
    with ScriptedReranker(jina=True, broken=refused_by_jina(status, code, message)) as server:
        row_of(server).save()
        assert why in find_passages(queries=["falcon"], files=files).notes[0].english


def test_a_key_and_a_model_that_jina_does_not_know_are_named(files: Any) -> None:
    with ScriptedReranker(jina=True) as server:
        row_of(server, api_key="another").save()
        assert "refused the API key" in find_passages(queries=["falcon"], files=files).notes[0].english
        Reranker.objects.update(api_key=KEY, model="rank-1")
        assert "does not offer this model" in find_passages(queries=["falcon"], files=files).notes[0].english
        Reranker.objects.update(model=JINAS_MODEL)
        assert points(find_passages(queries=["falcon"], files=files).hits) == [9, 7, 5, 1]


def test_nobody_is_asked_while_none_is_active(files: Any) -> None:
    with ScriptedReranker() as server:
        row_of(server, active=False).save()
        assert (points(find_passages(queries=["falcon"], files=files).hits), server.heads) == ([1, 7, 9, 5], [])


def test_an_administrator_sets_one_up_tests_it_and_switches_it_off(admin_client: Client) -> None:
    with ScriptedReranker() as server:
        form = {"name": "Theirs", "kind": "cohere", "base_url": server.url, "model": "rank-1", "new_api_key": KEY}
        numbers = {"candidates": 30, "longest": 1024, "patience": 5}
        refused = admin_client.post(reverse("admin:files_reranker_add"), form | numbers | {"base_url": "nowhere"})
        assert "Begin with http:// or https://" in refused.content.decode()
        admin_client.post(reverse("admin:files_reranker_add"), form | numbers)
        row = Reranker.objects.get(name="Theirs")
        assert row.active, "the very first is the active one"
        assert KEY not in admin_client.get(reverse("admin:files_reranker_change", args=[row.pk])).content.decode()
        message = pressed(admin_client, row, "try_it")
        assert "but it put a passage without the answer first" in message, "it knows points alone"
        assert "no longer orders" in pressed(admin_client, row, "stop_using")
        assert not Reranker.objects.filter(active=True).exists()
        assert "now orders" in pressed(admin_client, row, "use")
        server.broken = answer("{}", status="500 Internal Server Error")
        assert "overloaded" in pressed(admin_client, row, "try_it")
        with pytest.raises(ModelError):
            try_reranker(reranker=row)


def pressed(client: Client, row: Reranker, action: str) -> str:
    client.post(reverse(f"admin:files_reranker_{action}", args=[row.pk]), {"_form_submitted": "on"})
    page = client.get(reverse("admin:files_reranker_change", args=[row.pk]))
    return " ".join(str(message) for message in page.context["messages"])
