"""Files as programs upload, read and download them, through the running application."""

import io

import pytest
from PIL import Image, ImageChops

from accounts.services import create_token
from tests.application import Application
from tests.conftest import Person
from tests.product import Caller
from tests.projects.uploads import pdf, read, searchable, upload, uploaded


def test_an_upload_is_acknowledged_and_then_read(caller: Caller) -> None:
    uploaded = upload(caller, "notes.txt", "The lake holds water.")
    assert (uploaded["name"], uploaded["size"], uploaded["error"]) == ("notes.txt", 21, None)
    file = read(caller, uploaded["id"])
    assert (file["status"], file["media_type"]) == ("ready", "text/plain")
    assert file["tokens"] == 5
    assert [each["id"] for each in caller.get("files/")["results"]] == [uploaded["id"]]


def test_the_same_content_is_acknowledged_as_there_already(caller: Caller) -> None:
    first = upload(caller, "lake.txt", "The lake holds water, still.")
    read(caller, first["id"])
    answer = caller.http.post("files/", files={"file": ("lake (1).txt", b"The lake holds water, still.")})
    assert (answer.status_code, answer.json()["id"], answer.json()["name"]) == (200, first["id"], "lake.txt")
    assert answer.json()["note"] == "You already have this file, as “lake.txt”. It was not stored again."
    assert caller.get(f"files/{first['id']}/")["note"] == ""


def test_the_text_of_a_document_comes_by_page(caller: Caller) -> None:
    file = uploaded(caller, "contract.pdf", pdf("Clause one.", "Clause two.", "Clause three."))
    assert (file["pages"], file["media_type"]) == (3, "application/pdf")
    pieces = caller.get(f"files/{file['id']}/text/")["results"]
    assert [(piece["page"], piece["text"].strip()) for piece in pieces] == [
        (1, "Clause one."),
        (2, "Clause two."),
        (3, "Clause three."),
    ]
    assert all(piece["end"] - piece["start"] == len(piece["text"]) for piece in pieces)
    caller.get(f"files/{file['id']}/text/?page=4", expect=404)
    caller.get(f"files/{file['id']}/text/?start=-1", expect=400)


def picture(caller: Caller, address: str) -> Image.Image:
    answer = caller.http.get(f"files/{address}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
    return Image.open(io.BytesIO(answer.content))


def test_a_page_is_a_picture_with_the_passage_marked(caller: Caller) -> None:
    file = uploaded(caller, "contract.pdf", pdf("Clause one.", "Clause two."))
    pages, passage = f"{file['id']}/pages", "start=20&end=23"  # "two" on the second page
    plain = picture(caller, f"{pages}/2/picture/")
    assert plain.size == (1240, 1755)
    changed = ImageChops.difference(plain, picture(caller, f"{pages}/2/picture/?{passage}")).getbbox()
    assert changed is not None
    assert 0 < changed[2] - changed[0] < 150
    assert ImageChops.difference(plain, picture(caller, f"{pages}/2/picture/?start=0&end=6")).getbbox() is None
    assert caller.get(f"files/{pages}/3/picture/", expect=404)["code"] == "no_such_page"
    assert caller.get(f"files/{pages}/0/picture/", expect=404)["code"] == "no_such_page"
    assert caller.get(f"files/{pages}/two/picture/", expect=400)["code"] == "bad_number"
    notes = uploaded(caller, "notes.txt", "words")
    assert caller.get(f"files/{notes['id']}/pages/1/picture/", expect=409)["code"] == "no_pictures"


def test_a_long_text_comes_in_windows_that_together_are_the_whole(caller: Caller) -> None:
    whole = "\n".join(f"line {number} of a long text" for number in range(8_000))
    file = uploaded(caller, "long.txt", whole)
    window = caller.get(f"files/{file['id']}/text/")
    assert window["previous"] is None
    texts = [piece["text"] for piece in window["results"]]
    before = window
    while window["next"]:
        before, window = window, caller.get(window["next"])
        texts += [piece["text"] for piece in window["results"]]
    assert len(texts) > 2
    assert "".join(texts) == whole
    assert caller.get(window["previous"])["results"] == before["results"]


@pytest.mark.parametrize(
    ("name", "content", "shown"),
    [
        ("plain.txt", b"plain words", True),
        ("page.html", b"<!DOCTYPE html><html><body><script>alert(1)</script>words</body></html>", False),
        ("drawing.svg", b'<svg xmlns="http://www.w3.org/2000/svg"><text>words</text></svg>', False),
        ("contract.pdf", pdf("words"), True),
    ],
)
def test_an_original_comes_back_as_it_was_and_never_runs(
    caller: Caller, name: str, content: bytes, shown: bool
) -> None:
    file = uploaded(caller, name, content)
    response = caller.http.get(f"files/{file['id']}/content/")
    assert response.content == content
    assert response.headers["Content-Disposition"].startswith("inline" if shown else "attachment")
    assert name in response.headers["Content-Disposition"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    if name != "contract.pdf":  # which browsers do not show in a sandboxed document
        assert "sandbox" in response.headers["Content-Security-Policy"]


def test_what_fails_says_why_and_can_be_tried_again(caller: Caller) -> None:
    file = uploaded(caller, "broken.pdf", b"%PDF-1.4 and nothing more")
    assert (file["status"], file["error"]["code"], file["tokens"]) == ("failed", "damaged", None)
    assert "intact copy" in file["error"]["detail"]
    assert caller.post(f"files/{file['id']}/retry/")["error"] is None
    assert read(caller, file["id"])["error"]["code"] == "damaged"
    caller.get(f"files/{file['id']}/text/", expect=404)
    assert caller.http.get(f"files/{file['id']}/content/").content == b"%PDF-1.4 and nothing more"
    fine = uploaded(caller, "fine.txt", "words")
    assert caller.post(f"files/{fine['id']}/retry/", expect=409)["code"] == "not_failed"


def test_a_text_is_read_again_in_another_encoding(caller: Caller) -> None:
    file = uploaded(caller, "old.txt", "señor y año".encode("cp1252"))
    assert file["encoding"] == "cp1252"
    assert caller.post(f"files/{file['id']}/reread/", {"encoding": "cp1250"}, expect=202)["status"] == "uploaded"
    again = read(caller, file["id"])
    assert (again["encoding"], again["status"]) == ("cp1250", "ready")
    assert caller.get(f"files/{file['id']}/text/")["results"][0]["text"] == "seńor y ańo"
    refused = caller.post(f"files/{file['id']}/reread/", {"encoding": "rot13"}, expect=400)
    assert refused["code"] == "unknown_encoding"


def test_an_upload_without_a_file_or_with_an_empty_one_is_refused(caller: Caller) -> None:
    assert upload(caller, "empty.txt", b"", expect=400)["code"] == "empty_file"
    response = caller.http.post("files/", data={})
    assert (response.status_code, response.json()["code"]) == (400, "no_file")
    response = caller.http.post("files/", files={"other": ("a.txt", b"a")})
    assert (response.status_code, response.json()["code"]) == (400, "invalid")
    assert "other" in response.json()["detail"]


def test_a_deleted_file_is_gone(caller: Caller) -> None:
    file = uploaded(caller, "notes.txt", "words")
    assert caller.http.delete(f"files/{file['id']}/").status_code == 204
    for path in ("", "text/", "content/"):
        caller.get(f"files/{file['id']}/{path}", expect=404)
    assert caller.get("files/")["results"] == []


def test_a_strangers_file_does_not_exist(caller: Caller, stranger: Person) -> None:
    file = searchable(stranger.caller, "secret.txt", "the secret words")
    for path in ("", "text/", "content/", "pages/1/picture/"):
        caller.get(f"files/{file['id']}/{path}", expect=404)
    caller.post(f"files/{file['id']}/retry/", expect=404)
    assert caller.http.delete(f"files/{file['id']}/").status_code == 404
    assert stranger.caller.get(f"files/{file['id']}/")["status"] == "ready"


def test_a_token_needs_the_scope(person: Person, application: Application) -> None:
    _, token = create_token(user=person.user, name="chat only", scopes=["chat"])
    caller = Caller(application, token)
    assert caller.get("files/", expect=403)["code"] == "missing_scope"
    assert caller.get("projects/", expect=403)["code"] == "missing_scope"
