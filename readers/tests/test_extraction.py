"""Every kind of file, read in a process of its own as in the product."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import date
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from readers import process
from readers.__main__ import MEMORY
from readers.confinement import OOM_SCORE
from readers.formats.result import ReaderError
from readers.process import ROOT, active_layers, extract
from readers.tests import office_97, samples
from readers.tests.reading import Read, pages, read, refusal

__all__ = ["read"]


def failure(read: Read, content: bytes | str, name: str = "upload") -> str:
    return refusal(read, content, name).code


def test_a_pdf_gives_the_text_of_every_page(read: Read) -> None:
    result = read(samples.pdf(["First page\nsecond line", "Page two"]))
    assert result.media_type == "application/pdf"
    assert pages(result) == ["First page\nsecond line", "Page two"]
    assert [result.page_at(position) for position in (0, result.text.index("Page two"))] == [1, 2]


def test_a_page_without_text_is_counted_and_a_pdf_of_such_pages_is_refused(read: Read) -> None:
    result = read(samples.pdf(["Words", "", ""]))
    assert pages(result) == ["Words", "", ""] and result.left_out == {"scans": 2}
    assert str(result.notes[0]).startswith("2 of its 3 pages have no text")
    assert failure(read, samples.pdf(["", ""])) == "no_text"


def test_a_word_document_gives_paragraphs_and_rows_of_tables(read: Read) -> None:
    result = read(samples.word(["One\ttab", "Two"], [["a", "b"], ["c", "d"]]), "no-suffix")
    assert result.media_type.endswith("wordprocessingml.document")
    assert [line for line in result.text.split("\n") if line] == [
        *("One\ttab", "Two", "| a | b |", "| --- | --- |", "| c | d |"),
    ]
    assert result.spans == [] and result.page_at(5) == 0


def test_every_slide_is_a_page_and_has_its_notes(read: Read) -> None:
    result = read(samples.slides(["Alpha", "Beta"], notes="Say it slowly."))
    assert [page.split("\n")[0] for page in pages(result)] == ["# Alpha", "# Beta"]
    assert all("Say it slowly." in page for page in pages(result))


def test_every_sheet_is_a_page_of_rows(read: Read) -> None:
    rows: list[list[object]] = [["Name", "Day", "Sum"], ["Ada", date(2026, 11, 21), 12.5], ["Bob", None, True]]
    result = read(samples.workbook({"Bills": rows, "Empty": []}))
    assert pages(result) == ["# Bills\nName\tDay\tSum\nAda\t2026-11-21\t12.5\nBob\t\tTRUE", ""]
    assert result.notes == []


def test_a_workbook_in_the_strict_form_of_the_standard_is_read(read: Read) -> None:
    workbook = samples.workbook({"Bills": [["Ada", 12.5]]})
    assert pages(read(samples.strict(workbook))) == ["# Bills\nAda\t12.5"]


def test_every_chapter_of_a_book_is_a_page(read: Read) -> None:
    result = read(samples.book(["<h1>One</h1><p>Dawn.</p>", "<p>Dusk.</p>"]))
    assert result.media_type == "application/epub+zip"
    assert pages(result) == ["# One\n\nDawn.", "Dusk."]


def test_html_gives_what_a_reader_sees(read: Read) -> None:
    source = """<!doctype html><html><head><title>The title</title><script>steal()</script><style>p {}</style></head>
    <body><h1>Head</h1><p>Some  <b>bold</b>
    words &amp; more<br>next</p><ul><li>one</li><li>two</li></ul><table><tr><td>a</td><td>b</td></tr></table>
    <pre>  kept
  as is</pre><template>not this</template><svg><text>nor this</text></svg><p onclick="steal()">end</p></body></html>"""
    result = read(source)
    assert result.media_type == "text/html"
    assert [line for line in result.text.split("\n") if line] == [
        "The title", "# Head", "Some bold words & more", "next", "- one", "- two", "| a | b |", "| --- | --- |",
        "```", "  kept", "  as is", "```", "end",
    ]  # fmt: skip


def test_an_email_gives_headers_the_plain_words_and_the_names_of_attachments(read: Read) -> None:
    result = read(samples.mail(), "letter")
    assert result.media_type == "message/rfc822"
    assert "From: Ada <ada@example.org>" in result.text and "Subject: Grüße" in result.text
    assert "The plain words." in result.text and "HTML" not in result.text
    assert "Attachments: bill.pdf" in result.text and "Attachment bill.pdf: [Not read: It is damaged" in result.text
    assert list(map(str, result.notes)) == ["Attachments that were not read: 1. Upload them separately."]


def test_attachments_that_are_text_or_letters_are_read(read: Read) -> None:
    inner, message = EmailMessage(), EmailMessage()
    inner["Subject"] = "The first one"
    inner.set_content("Quoted words.")
    message["From"] = "ada@example.org"
    message.set_content("See below.")
    message.add_attachment("a,b\n1,2\n", subtype="csv", filename="sums.csv")
    message.add_attachment(inner)
    result = read(message.as_bytes(), "letter.eml")
    assert [line for line in result.text.split("\n") if line] == [
        *("From: ada@example.org", "See below.", "Attachments: sums.csv, message/rfc822", "Attachment sums.csv:"),
        *("a,b", "1,2", "Attachment message/rfc822:", "Subject: The first one", "Quoted words."),
    ]
    assert result.notes == []


def test_every_letter_of_a_mailbox_is_a_page(read: Read) -> None:
    box = "From ada Mon Jan 5\nSubject: One\n\nFrom here on.\n\nFrom bob Tue Jan 6\nSubject: Two\n\nBye.\n"
    result = read(box)
    assert result.media_type == "application/mbox"
    assert pages(result) == ["Subject: One\n\nFrom here on.", "Subject: Two\n\nBye."]


def test_a_notebook_gives_its_cells_and_what_came_out_but_for_pictures(read: Read) -> None:
    code: dict[str, Any] = {"cell_type": "code", "source": ["x = 1\n", "x"]}
    code["outputs"] = [
        {"output_type": "stream", "text": "\x1b[31mred\x1b[0m\n"},
        {"output_type": "display_data", "data": {"image/png": "iVBO" * 1_000, "text/plain": ["<Figure>"]}},
        {"output_type": "error", "ename": "NameError", "evalue": "y"},
    ]
    cells = [{"cell_type": "markdown", "source": "# Ducks"}, code]
    result = read(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}), "work.ipynb")
    assert [line for line in result.text.split("\n") if line] == [
        *("# Ducks", "```python", "x = 1", "x", "```", "Output:", "```", "red", "```"),
        *("Output:", "```", "<Figure>", "```", "Output:", "```", "NameError: y", "```"),
    ]
    assert result.left_out == {"pictures": 1}
    assert read("[1, 2]", "no.ipynb").text == "[1, 2]" and read("[" * 100_000, "deep.ipynb").text == "[" * 100_000


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("a.csv", "text/csv"),
        ("a.tsv", "text/tab-separated-values"),
        ("README.md", "text/markdown"),
        ("a.py", "text/x-python"),
        ("a.json", "application/json"),
        ("a.pdf", "text/plain"),
        ("a", "text/plain"),
    ],
)
def test_the_name_tells_kinds_of_text_apart_and_nothing_else(read: Read, name: str, media_type: str) -> None:
    result = read("a,b\r\n1,2\r\n", name)
    assert (result.media_type, result.text) == (media_type, "a,b\n1,2")


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-32", "Tiếng Việt"),
        ("cp1252", "Die Straße führt über die Brücke zum Bäcker, der früh öffnet und spät schließt. " * 5),
        ("shift_jis", "これは日本語の文章です。文字コードを当てる必要があります。" * 10),
    ],
)
def test_text_is_read_in_its_own_encoding(read: Read, encoding: str, text: str) -> None:
    assert read(text.encode(encoding)).text == text.rstrip()


COMPOUND = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(504)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (office_97.compound({"Contents": b"x"}), "Files of this kind cannot be read"),
        (b"\x1f\x8b\x08" + bytes(90), "This is an archive of files"),
        (samples.archive({"Index/Document.iwa": "x"}), "This is a document of Pages"),
        (b"\0\0\0\x18ftypheic" + bytes(90), "This is a phone picture"),
        (b"ID3\x03" + bytes(90), "This is a sound recording"),
        (b"\0\0\0\x18ftypisom" + bytes(90), "This is a video"),
        (b"\x7fELF" + bytes(90), "This is a program"),
    ],
)
def test_a_kind_that_is_not_read_is_named_with_the_way_out(read: Read, content: bytes, sentence: str) -> None:
    error = refusal(read, content)
    assert error.code == "unsupported" and str(error.sentence).startswith(sentence)


def test_what_postgresql_cannot_store_is_left_out(read: Read) -> None:
    long = "word " * 1_000
    assert read(long + "a\x00b\x0cc\x7f\ufffe d \r\n\r\n").text == long + "ab\nc d"


@pytest.mark.parametrize(("kind", "media_type"), [("PNG", "png"), ("JPEG", "jpeg"), ("WEBP", "webp"), ("GIF", "gif")])
def test_an_image_gives_its_size(read: Read, kind: str, media_type: str) -> None:
    result = read(samples.image(kind, 40, 30), "photo.txt")
    assert (result.media_type, result.width, result.height, result.text) == (f"image/{media_type}", 40, 30, "")


def test_svg_is_text(read: Read) -> None:
    source = '<svg xmlns="http://www.w3.org/2000/svg"><script>steal()</script></svg>'
    result = read(source, "logo.png")
    assert (result.media_type, result.text, result.width) == ("image/svg+xml", source, None)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (samples.protected_pdf(), "encrypted"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512), "damaged"),
        (samples.pdf(["Words"])[:200], "damaged"),
        (samples.word(["Words"])[:2000], "damaged"),
        (samples.image("PNG")[:20], "damaged"),
        (COMPOUND + "Workbook\0".encode("utf-16-le"), "damaged"),
        (COMPOUND + "__nameid_version1.0\0".encode("utf-16-le"), "damaged"),
        (b"\x7fELF" + bytes(100), "unsupported"),
        (b" \n\t\n", "empty"),
        (samples.workbook({"Empty": []}), "empty"),
        (samples.word([]), "wordless"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(read: Read, content: bytes, code: str) -> None:
    assert failure(read, content) == code


@pytest.mark.process
def test_a_reader_that_never_ends_is_ended_and_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "WALL_SECONDS", 0.5)
    path = tmp_path / "pipe"
    os.mkfifo(path)  # nobody ever writes into it
    with pytest.raises(ReaderError) as caught:
        extract(path, "a.txt")
    assert caught.value.code == "machine_busy"
    assert caplog.text.count("reading pipe once more") == 1


def confined(parent: str, then: str) -> "subprocess.CompletedProcess[str]":
    code = f"import os\nfrom readers.confinement import limit, seal\nlimit({parent}, {MEMORY})\n{then}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.process
def test_a_reader_has_no_more_than_its_limits() -> None:
    ended = confined("os.getppid()", f"bytearray({MEMORY // 2})\nbytearray({MEMORY})")
    assert "MemoryError" in ended.stderr and "line 5" in ended.stderr
    assert "Too many open files" in confined("os.getppid()", "[os.dup(0) for _ in range(100)]").stderr
    score = confined("os.getppid()", "print(open('/proc/self/oom_score_adj').read())").stdout
    assert int(score) == OOM_SCORE  # the kernel ends it before the process that started it
    endless = "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 2))\nwhile True: pass"
    assert confined("os.getppid()", endless).returncode == -signal.SIGXCPU


@pytest.mark.process
def test_a_reader_does_not_outlive_who_started_it() -> None:
    assert confined("1234567890", "print('alive')").returncode == -signal.SIGKILL


ATTACKS = """
import resource, socket, sys, threading
from pathlib import Path
from typing import Any
others = os.getppid()  # asked before anything is taken away
upload, secret = Path(sys.argv[1]), Path(sys.argv[2])
os.setuid(int(sys.argv[3]))
layers = seal((upload,))
attacks = {
    "landlock": [
        secret.read_bytes,
        lambda: os.listdir(secret.parent),
        lambda: Path(f"/proc/{others}/environ").read_bytes(),
        lambda: Path("/etc/passwd").read_bytes(),
        lambda: secret.with_name("planted").write_bytes(b"x"),
    ],
    "seccomp": [
        lambda: socket.socket(socket.AF_INET),
        lambda: socket.socket(socket.AF_UNIX),
        lambda: os.execv("/bin/sh", ["sh", "-c", "exit 0"]),
        lambda: os.posix_spawn("/bin/sh", ["sh"], {}),
        os.fork,
        lambda: os.kill(others, 0),
        lambda: resource.prlimit(others, resource.RLIMIT_CORE, (0, 0)),
        lambda: os.chmod(upload, 0o777),
        lambda: upload.write_bytes(b"x"),
        lambda: os.unlink(upload),
    ],
}
assert upload.read_bytes() == b"words"
for layer in layers:
    for number, attack in enumerate(attacks[layer]):
        try:
            attack()
        except PermissionError:
            continue
        print(layer, number, "went through")
worker = threading.Thread(target=print, args=(*layers,))
worker.start()
worker.join()
"""


def unprivileged() -> list[int]:
    """Return the users to run a reader as: the current one, and an unprivileged one if root runs the tests."""
    return [os.getuid()] if os.getuid() else [0, 65534]


@pytest.mark.process
@pytest.mark.skipif(not active_layers(), reason="this kernel has no layer of confinement")
@pytest.mark.parametrize("uid", unprivileged())
def test_a_reader_under_attack_reaches_only_its_file(uid: int) -> None:
    with tempfile.TemporaryDirectory() as name:  # one that others can enter: pytest's own are private
        place = Path(name)
        place.chmod(0o777)
        upload, secret = place / "upload", place / "secret_key"
        upload.write_bytes(b"words")
        secret.write_bytes(b"secret")
        for path in (upload, secret):
            path.chmod(0o666)
        code = f"import os\nfrom readers.confinement import seal\n{ATTACKS}"
        finished = subprocess.run(
            [sys.executable, "-c", code, upload, secret, str(uid)], cwd=ROOT, capture_output=True, text=True
        )
        assert (finished.stdout, finished.stderr) == (" ".join(active_layers()) + "\n", "")
        assert sorted(path.name for path in place.iterdir()) == ["secret_key", "upload"]


@pytest.mark.process
def test_what_reads_an_upload_is_confined_before_it_opens_it(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    command = [sys.executable, "-m", "readers", str(path), "a.txt", str(os.getpid())]
    with (
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as reader,
        path.open("wb"),
    ):  # waits for it
        status = Path(f"/proc/{reader.pid}/status").read_text()
        reader.kill()
    assert "NoNewPrivs:\t1" in status
    assert ("Seccomp:\t2" in status) == ("seccomp" in active_layers())
