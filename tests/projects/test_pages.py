"""The pages of projects and files: their rights, and no content of a file becomes part of a page."""

import pytest
from django.test import Client

from accounts.models import User
from chat.models import Conversation
from files.models import File, FileText
from projects.models import Membership, Project, ProjectFile

pytestmark = pytest.mark.django_db
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def owner() -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def file(owner: User) -> File:
    text = f"before {EVIL} after"
    row = File.objects.create(owner=owner, name=f"{EVIL}.txt", size=1, sha256="0" * 64, status="ready")
    FileText.objects.create(file=row, text=text, spans=[[0, len(text)]])
    return row


@pytest.fixture
def project(owner: User, file: File) -> Project:
    row = Project.objects.create(owner=owner, name="Contracts", instructions="Be exact.")
    ProjectFile.objects.create(project=row, file=file)
    return row


def member(project: Project, role: str) -> Client:
    person = User.objects.create_user(f"a-{role}")
    Membership.objects.create(project=project, user=person, role=role)
    return signed_in(person)


def signed_in(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def page(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return response.content.decode()


def test_a_reader_sees_a_project_without_anything_to_change_it(project: Project) -> None:
    reader = member(project, "reader")
    shown = page(reader, f"/projects/{project.pk}/")
    assert "Be exact." in shown and "you read" in shown and "Leave" in shown
    assert not any(
        words in shown for words in ('name="instructions"', "data-upload ", "Delete this project", "Move ", "Pin ")
    )
    assert reader.get(f"/projects/{project.pk}/files/choose/").status_code == 403


def test_a_readers_forms_are_refused(project: Project, file: File) -> None:
    reader = member(project, "reader")
    where = f"/projects/{project.pk}/"
    for path, body in {
        f"{where}settings/": {"name": "Mine"},
        f"{where}files/": {"file": str(file.pk)},
        f"{where}upload/": {},
        f"{where}files/{file.pk}/": {"pinned": "true"},
        f"{where}files/{file.pk}/remove/": {},
        f"{where}members/": {"username": "olga"},
        f"{where}delete/": {},
    }.items():
        assert reader.post(path, body).status_code == 403, path
    assert reader.post(f"/files/{file.pk}/delete/").status_code == 404
    project.refresh_from_db()
    assert (project.name, ProjectFile.objects.filter(project=project, pinned=False).count()) == ("Contracts", 1)


def test_the_page_of_a_project_asks_in_it_and_lists_ones_own_conversations(owner: User, project: Project) -> None:
    Conversation.objects.create(owner=owner, project=project, title="Which fee?")
    Conversation.objects.create(owner=owner, title="Elsewhere")
    shown = page(signed_in(owner), f"/projects/{project.pk}/")
    assert "Ask in Contracts" in shown and f'name="project" value="{project.pk}"' in shown
    place = shown.partition('class="place"')[2]
    assert "Which fee?" in place and "Elsewhere" not in place
    assert "Which fee?" not in page(member(project, "editor"), f"/projects/{project.pk}/")
    led = signed_in(owner).get(f"/?project={project.pk}&text=Hi")
    assert led["Location"] == f"/projects/{project.pk}/?text=Hi"
    assert signed_in(owner).get("/?project=nothing").status_code == 404


def test_the_file_picker_shows_readable_files_with_name_kind_size_and_day(
    owner: User, project: Project, file: File
) -> None:
    rows = [
        ("plan.pdf", "1" * 64, "ready", "application/pdf"),
        ("broken.pdf", "2" * 64, "failed", "application/pdf"),
        ("copy.txt", file.sha256, "ready", "text/plain"),
    ]
    for name, sha256, status, kind in rows:
        File.objects.create(owner=owner, name=name, size=2_048, sha256=sha256, status=status, media_type=kind)
    otto = User.objects.create_user("otto")
    File.objects.create(owner=otto, name="theirs.pdf", size=1, sha256="3" * 64, status="ready")
    client = signed_in(owner)
    shown = " ".join(page(client, f"/projects/{project.pk}/files/choose/").split())
    assert "plan.pdf" in shown and "PDF · 2.0" in shown and "broken.pdf" not in shown and "theirs.pdf" not in shown
    assert shown.count("Added") == 1 and shown.count("The project has a file with the same content.") == 1
    searched = page(client, f"/projects/{project.pk}/files/choose/?q=PLAN")
    assert "plan.pdf" in searched and "copy.txt" not in searched
    assert "has “nowhere” in its name" in page(client, f"/projects/{project.pk}/files/choose/?q=nowhere")


def test_an_editor_changes_instructions_but_does_not_see_who_to_invite(project: Project) -> None:
    editor = member(project, "editor")
    shown = page(editor, f"/projects/{project.pk}/")
    assert 'name="instructions"' in shown and 'type="file"' in shown
    assert "Delete this project" not in shown and 'name="username"' not in shown


def test_somebody_who_left_is_led_away(project: Project) -> None:
    reader = member(project, "reader")
    person = Membership.objects.get(project=project).user_id
    response = reader.post(f"/projects/{project.pk}/members/{person}/remove/")
    assert response["Location"] == "/projects/"
    assert reader.get(f"/projects/{project.pk}/").status_code == 404


def test_what_is_in_a_file_or_its_name_is_only_text(owner: User, project: Project, file: File) -> None:
    client = signed_in(owner)
    for url in ("/files/", f"/files/{file.pk}/?start=3&end=20", f"/files/{file.pk}/chip/", f"/projects/{project.pk}/"):
        shown = page(client, url)
        assert EVIL not in shown
        assert "&lt;script&gt;" in shown


def test_a_passage_is_marked_where_it_is(owner: User, file: File) -> None:
    shown = page(signed_in(owner), f"/files/{file.pk}/?start=0&end=6")
    assert '<mark id="passage" tabindex="-1">before</mark> &lt;script' in shown


def test_a_passage_over_two_pages_has_one_place_to_go_to(owner: User, file: File) -> None:
    FileText.objects.filter(file=file).update(text="one two three", spans=[[0, 8], [8, 13]])
    shown = page(signed_in(owner), f"/files/{file.pk}/?start=4&end=10")
    assert (shown.count('id="passage"'), shown.count("<mark ")) == (1, 2)


def test_where_a_file_is_used_names_only_projects_that_one_sees(owner: User, project: Project, file: File) -> None:
    other = Project.objects.create(owner=User.objects.create_user("otto"), name="Hidden plans")
    ProjectFile.objects.create(project=other, file=file)
    shown = page(signed_in(owner), "/files/")
    assert "Contracts" in shown and "1 that you cannot see" in shown
    assert "Hidden plans" not in shown


def test_the_list_has_a_fixed_number_of_queries(owner: User, django_assert_max_num_queries: object) -> None:
    assert callable(django_assert_max_num_queries)
    rows = [File(owner=owner, name=f"{n}.txt", size=1, sha256=f"{n:064}", status="ready") for n in range(120)]
    File.objects.bulk_create(rows)
    client = signed_in(owner)
    page(client, "/files/")  # what the person may do is known from here on
    with django_assert_max_num_queries(11):
        shown = page(client, "/files/")
    assert shown.count("<tr id=") == 100
    assert "More files" in shown


def test_a_passage_that_is_not_where_its_link_says_is_missed_in_words(owner: User, file: File) -> None:
    client, text = signed_in(owner), f"before {EVIL} after"
    FileText.objects.filter(file=file).update(spans=[[0, 7], [7, len(text)]])
    sentence = "The passage was not found"
    for place in ("start=0&end=6&page=1", "start=7&end=15&page=2", "start=0&end=6", "start=3", "page=2"):
        assert sentence not in page(client, f"/files/{file.pk}/?{place}"), place
    for place in (
        "start=0&end=6&page=2",
        "start=0&end=6&page=3",
        "start=0&end=999",
        "start=900&end=999",
        "start=6&end=3",
    ):
        shown = page(client, f"/files/{file.pk}/?{place}")
        assert sentence in shown and "<mark" not in shown and "before" in shown, place
    File.objects.filter(pk=file.pk).update(status="failed")
    assert f"{sentence}: this file has no text" in page(client, f"/files/{file.pk}/?start=0&end=6")


def test_a_citation_of_a_file_that_is_gone_or_closed_says_so(owner: User, project: Project, file: File) -> None:
    reader = member(project, "reader")
    cited = f"/files/{file.pk}/?start=0&end=6#page-1"
    assert "<mark" in page(reader, cited)
    Membership.objects.all().delete()
    for client in (reader, signed_in(owner)):
        response = client.get(cited)
        assert response.status_code == 404 and "The passage was not found" in response.content.decode()
        File.objects.all().delete()
    assert "The file was not found" in signed_in(owner).get(f"/files/{file.pk}/").content.decode()


def test_rows_that_are_read_say_that_the_meter_has_changed(owner: User, project: Project, file: File) -> None:
    """This holds even if a person only waits."""
    browser, where = signed_in(owner), f"/projects/{project.pk}/files/"
    File.objects.filter(pk=file.pk).update(status="processing")
    assert "HX-Trigger" not in browser.get(where, headers={"HX-Request": "true"})
    File.objects.filter(pk=file.pk).update(status="ready")
    assert browser.get(where, headers={"HX-Request": "true"})["HX-Trigger"] == "meterchange"


def test_only_the_owner_of_a_protected_file_is_asked_for_its_password(
    project: Project, file: File, owner: User
) -> None:
    File.objects.filter(pk=file.pk).update(status="failed", error_code="encrypted", error="It is protected.")
    text = page(signed_in(owner), f"/files/{file.pk}/")
    assert 'type="password"' in text and f"/files/{file.pk}/reread/" in text and "Try again" not in text
    assert 'type="password"' not in page(member(project, "reader"), f"/files/{file.pk}/")
    File.objects.filter(pk=file.pk).update(error_code="protected")
    assert 'type="password"' not in page(signed_in(owner), f"/files/{file.pk}/")
