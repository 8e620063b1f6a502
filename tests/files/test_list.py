"""The page of all files: narrowed, in another order, and several deleted at once."""

import re
from uuid import uuid4

import pytest
from django.test import Client

from accounts.models import User
from files.models import File

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return User.objects.create_user("lists")


@pytest.fixture
def client(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


def stored(owner: User, name: str, size: int = 1, **fields: object) -> File:
    return File.objects.create(
        owner=owner, name=name, size=size, sha256=uuid4().hex * 2, **{"status": "ready", **fields}
    )


def names(client: Client, query: str = "") -> list[str]:
    page = client.get(f"/files/{query}").content.decode()
    return re.findall(r'<a id="open-[^>]+>([^<]+)</a>', page)


def test_the_list_is_narrowed_and_put_into_another_order(client: Client, owner: User) -> None:
    stored(owner, "Report of May.pdf", 30)
    stored(owner, "photo.png", 20, width=4, height=4)
    stored(owner, "annex report.txt", 10, status="failed")
    assert names(client) == ["annex report.txt", "photo.png", "Report of May.pdf"]
    assert names(client, "?order=name") == sorted(names(client), key=str.lower)
    assert names(client, "?order=largest") == ["Report of May.pdf", "photo.png", "annex report.txt"]
    assert names(client, "?q=report+may") == ["Report of May.pdf"]
    assert names(client, "?kind=image") == ["photo.png"]
    assert names(client, "?kind=failed") == ["annex report.txt"]
    assert names(client, "?kind=nonsense&order=nonsense") == names(client)
    assert "No file of yours is like that." in client.get("/files/?q=nothing").content.decode()


@pytest.mark.parametrize("order", ["", "name", "largest"])
def test_every_order_goes_on_where_a_page_ends(client: Client, owner: User, order: str) -> None:
    rows = [File(owner=owner, name=f"{n % 7}.txt", size=n % 5, sha256=f"{n:064}", status="ready") for n in range(230)]
    File.objects.bulk_create(rows)
    seen: list[str] = []
    address = f"/files/?order={order}"
    while address:
        page = client.get(address).content.decode()
        seen += re.findall(r'<tr id="row-([0-9a-f-]+)"', page)
        more = re.search(r'class="more-link"\s+href="([^"]+)"', page)
        address = more[1].replace("&amp;", "&") if more else ""
    assert (len(seen), len(set(seen))) == (230, 230)


def test_ticked_files_are_deleted_after_a_question(client: Client, owner: User) -> None:
    going, staying = stored(owner, "old.txt"), stored(owner, "new.txt")
    body = {"file": [str(going.pk)]}
    question = client.post("/files/delete/", body).content.decode()
    assert "old.txt" in question and "new.txt" not in question and File.objects.filter(pk=going.pk).exists()
    assert client.post("/files/delete/", {**body, "confirmed": "yes"})["Location"] == "/files/"
    assert list(File.objects.filter(owner=owner)) == [staying]


def test_files_of_others_none_and_too_many_are_refused(client: Client, owner: User) -> None:
    other = stored(User.objects.create_user("another"), "theirs.txt")
    mine = stored(owner, "mine.txt")
    both = {"file": [str(mine.pk), str(other.pk)], "confirmed": "yes"}
    assert client.post("/files/delete/", both).status_code == 404
    assert client.post("/files/delete/", {"confirmed": "yes"}).status_code == 400
    assert client.post("/files/delete/", {"file": [str(uuid4()) for _ in range(101)]}).status_code == 400
    assert File.objects.filter(pk__in=[mine.pk, other.pk]).count() == 2
