"""A person uploads files, reads them, and sends them with a message, in a browser."""

import base64
import io
import re
from collections.abc import Iterator
from functools import partial

import pytest
from PIL import Image
from playwright.sync_api import FilePayload, Page, expect

from files.models import File, FileText, RecognisedPage
from llm.models import Model
from readers.outside.places import RECOGNISED, WordPlace, pack_places
from readers.tests.test_page_pictures import marked
from tests.chat.books import book, notes, small_model
from tests.chat.documents import upload
from tests.conftest import Person
from tests.e2e.conftest import OpenBrowser, answer, ask, expect_complete, field, in_thread, ready, scripted, status
from tests.e2e.file_steps import attach, carry, chip, choose, go_to, overflow, row, send_button, text_file
from tests.product import Product
from tests.projects.uploads import pdf

pytestmark = [pytest.mark.browser, pytest.mark.product]

FACT = "In March Anna Berger bought 40 kg of cacao in Hamburg."
BROKEN = FilePayload(name="broken.pdf", mimeType="application/pdf", buffer=b"%PDF-1.4 and nothing more")


@pytest.fixture
def small(product: Product, committed: None) -> Iterator[Model]:
    model = in_thread(partial(small_model, product))
    yield model
    in_thread(model.provider.delete)


def test_several_files_are_uploaded_at_once_and_their_states_change_live(page: Page) -> None:
    go_to(page, "Files")
    expect(page.get_by_text("No files yet.")).to_be_visible()
    contract = FilePayload(name="contract.pdf", mimeType="application/pdf", buffer=pdf("Clause one.", "Clause two."))
    choose(page, text_file("notes.txt", "The lake holds water."), contract, BROKEN)
    expect(row(page, "notes.txt")).to_contain_text(re.compile(r"Ready\s+–\s+5\b"))
    expect(row(page, "contract.pdf")).to_contain_text(re.compile(r"Ready\s+2\s"))
    expect(row(page, "broken.pdf")).to_contain_text("Failed")
    expect(row(page, "broken.pdf")).to_contain_text("It is damaged")
    expect(page.locator("#uploads li")).to_have_count(0)


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_files_come_by_drop_and_paste(page: Page, kind: str) -> None:
    go_to(page, "Files")
    expect(page.get_by_text("Drop or paste files")).to_be_visible()
    carry(page, kind, "carried.txt", b"some words")
    expect(row(page, "carried.txt")).to_contain_text("Ready")


def test_an_upload_that_is_refused_says_why(visit: OpenBrowser) -> None:
    opened = visit()
    page = opened.sign_in()
    opened.expected.append("400 (Bad Request)")
    go_to(page, "Files")
    choose(page, text_file("empty.txt", ""))
    line = page.locator("#uploads li")
    expect(line).to_contain_text("The file is empty.")
    line.get_by_role("button", name="Dismiss").click()
    expect(line).to_have_count(0)


def test_a_file_shows_its_pages_and_is_deleted_after_a_question(page: Page) -> None:
    go_to(page, "Files")
    content = pdf("Clause one.", "Clause two.")
    choose(page, FilePayload(name="contract.pdf", mimeType="application/pdf", buffer=content))
    expect(row(page, "contract.pdf")).to_contain_text("Ready")
    row(page, "contract.pdf").get_by_role("link", name="contract.pdf").click()
    expect(page.get_by_role("heading", name="contract.pdf")).to_be_visible()
    expect(page.locator("#page-2")).to_contain_text("Clause two.")
    page.goto(page.url + "?start=7&end=10#passage")
    expect(page.locator("mark")).to_have_text("one")
    expect(page.locator("mark")).to_be_focused()
    shown = page.get_by_role("img", name="Page 1, on which is marked: one")
    expect(shown).to_have_js_property("naturalWidth", 1240)
    expect(page.get_by_role("img", name="Page 2")).to_be_hidden()
    page.get_by_text("Page 2 as a picture").press("Enter")
    expect(page.get_by_role("img", name="Page 2")).to_have_js_property("naturalWidth", 1240)
    page.get_by_text("Delete…").click()
    page.get_by_role("button", name="Delete for ever").click()
    expect(page.get_by_text("No files yet.")).to_be_visible()


def test_the_mark_stands_over_the_words_of_a_scan(page: Page, person: Person) -> None:
    out = io.BytesIO()
    Image.new("L", (600, 800), 255).save(out, "PDF")
    file = upload(person, "scan.pdf", out.getvalue())["id"]
    place = WordPlace(2_000, 1_250, 3_167, 1_625)

    def recognise() -> None:  # which takes a program that not every machine has
        text = f"{RECOGNISED}: eng, 96 % sure]\n\nThe lake rises."
        fields = {"status": "ready", "media_type": "application/pdf", "pages": 1, "error": "", "error_code": ""}
        File.objects.filter(pk=file).update(**fields)
        FileText.objects.update_or_create(file_id=file, defaults={"text": text, "spans": [(0, len(text))]})
        words = [WordPlace(800, 1_250, 1_900, 1_625), place, WordPlace(3_300, 1_250, 4_500, 1_625)]
        RecognisedPage.objects.update_or_create(file_id=file, page=1, defaults={"places": pack_places(words)})

    in_thread(recognise)
    start = len(f"{RECOGNISED}: eng, 96 % sure]\n\nThe ")
    page.goto(f"{person.caller.url}/files/{file}/?start={start}&end={start + 4}#passage")
    shown = page.get_by_role("img", name="Page 1, on which is marked: lake")
    expect(shown).to_have_js_property("complete", True)
    expect(shown).not_to_have_js_property("naturalWidth", 0)
    box = marked(Image.open(io.BytesIO(shown.screenshot())).convert("RGB"))
    assert box is not None
    assert all(abs(at - edge / 100) <= 2 for at, edge in zip(box, place, strict=True))


@pytest.mark.smoke
def test_a_file_goes_with_a_message_and_the_plan_counts_it(page: Page) -> None:
    expect(page.locator(".plan-line")).to_contain_text("fit")
    edge = page.locator("#plan-bar .group-files")
    expect(edge).to_have_count(0)
    field(page).fill("What does it say?")
    attach(page, text_file("notes.txt", "The lake holds water. " * 100))
    expect(chip(page, "notes.txt")).to_have_attribute("data-status", "ready")
    expect(chip(page, "notes.txt").locator("input[name=files]")).to_have_count(1)
    expect(edge).to_have_count(1)
    expect(send_button(page)).to_be_enabled()
    ask(page, "What does it say?", text="It is about a lake.")
    expect(page).to_have_url(re.compile(r"/c/[0-9a-f-]{36}/$"))
    expect(answer(page)).to_contain_text("It is about a lake.")
    expect_complete(page)
    expect(page.locator("#chips .chip")).to_have_count(0)
    expect(page.locator("article.question")).to_contain_text("notes.txt")
    attach(page, text_file("more.txt", "More words."))
    expect(chip(page, "more.txt")).to_have_attribute("data-status", "ready")
    ask(page, "And this?", text="Second answer.")
    expect(page.locator("article.question").nth(1)).to_contain_text("more.txt")
    expect(page.locator("#chips .chip")).to_have_count(0)
    expect_complete(page)


def test_what_cannot_be_read_cannot_be_sent_until_it_is_removed(page: Page) -> None:
    field(page).fill("Please read this")
    expect(send_button(page)).to_be_enabled()
    attach(page, BROKEN)
    expect(chip(page, "broken.pdf")).to_contain_text("It is damaged")
    expect(send_button(page)).to_be_disabled()
    expect(send_button(page)).to_have_attribute("title", "Remove the files that cannot be sent.")
    field(page).press("Enter")
    expect(status(page)).to_have_text("Remove the files that cannot be sent.")
    page.get_by_role("button", name="Remove broken.pdf").click()
    expect(page.locator("#chips .chip")).to_have_count(0)
    expect(field(page)).to_be_focused()
    expect(send_button(page)).to_be_enabled()
    expect(status(page)).to_have_text("")


def test_a_picture_is_pasted_into_the_message(page: Page) -> None:
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    expect(page.get_by_role("button", name="Attach files")).to_be_visible()
    carry(page, "paste", "picture.png", base64.b64decode(dot))
    expect(chip(page, "picture.png")).to_have_attribute("data-status", "ready")


def test_a_draft_survives_the_chips_that_refresh_below_it(page: Page) -> None:
    field(page).fill("A draft")
    attach(page, text_file("a.txt", "words"), text_file("b.txt", "other words"))
    for name in ("a.txt", "b.txt"):
        expect(chip(page, name)).to_have_attribute("data-status", "ready")
    expect(field(page)).to_have_value("A draft")


def test_files_are_listed_and_uploaded_without_scripts(visit: OpenBrowser) -> None:
    page = visit(java_script_enabled=False).sign_in()
    go_to(page, "Files")
    page.get_by_label("Files to upload").set_input_files(
        [text_file("a.txt", "words"), text_file("b.txt", "other words")]
    )
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="a.txt").click()
    expect(page.get_by_role("heading", name="a.txt")).to_be_visible()


def test_the_pages_fit_on_a_phone(phone: Page) -> None:
    phone.get_by_role("button", name="Conversations").click()
    go_to(phone, "Files")
    choose(phone, text_file("a-name-without-any-place-to-break-it" * 4 + ".txt", "words"))
    expect(row(phone, "a-name")).to_contain_text("Ready")
    assert overflow(phone) == 0
    row(phone, "a-name").get_by_role("link").first.click()
    expect(phone.get_by_text("words", exact=True)).to_be_visible()
    assert overflow(phone) == 0


def test_a_question_is_asked_over_all_of_a_file_that_is_too_large(
    page: Page, person: Person, product: Product, small: Model
) -> None:
    caller = person.caller
    text = book(*[notes(number) for number in range(1, 5)], notes(5, hangs_times=1), fact=FACT)
    file = upload(person, "book.md", text.encode())["id"]
    persona = caller.post("personas/", {"name": "Reader", "instructions": "Read.", "model": str(small.pk)}, expect=201)
    place = caller.post("conversations/", {"persona": persona["id"]}, expect=201)["id"]
    page.goto(f"{caller.url}/c/{place}/?file={file}")
    ready(page)
    field(page).fill(scripted("How much was bought?", text=f"{FACT} [1] In April Anna Berger bought 90 kg of it [1]."))
    expect(page.locator(".plan-line")).to_have_attribute("data-fits", "false")
    page.locator(".plan-line").click()
    with page.expect_popup() as opened:
        page.locator("#panel").get_by_role("link", name="Read in full").first.click()
    reading = opened.value
    expect(reading.get_by_label("Question")).to_have_value(re.compile("^How much was bought"))
    expect(reading.locator("#reading-plan")).to_contain_text("1 for the answer")
    reading.get_by_role("button", name="Read in full").click()
    expect(reading.get_by_text("Something was found in")).to_be_visible()
    bar = reading.get_by_role("progressbar")
    expect(bar).to_have_attribute("value", str(int(bar.get_attribute("max") or 0) - 1))  # all but what hangs, live
    reading.get_by_role("button", name="Stop").click()
    expect(reading.get_by_text("It was stopped.")).to_be_visible()
    reading.get_by_text("Go on…").click()
    reading.get_by_role("button", name="Go on", exact=True).click()
    expect(reading.get_by_role("heading", name="Answer")).to_be_visible()  # without a reload
    expect(reading.get_by_text("100 % of the text")).to_be_visible()
    with reading.expect_popup() as doubt:
        reading.locator(".doubt").click()
    expect(doubt.value.get_by_text("does not have the number “90”")).to_be_visible()
    with reading.expect_popup() as source:
        reading.locator(".reading-sources .citation").first.click()
    expect(source.value.locator("mark", has_text=FACT).first).to_be_visible()
