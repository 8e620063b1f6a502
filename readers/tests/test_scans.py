"""Pages that are pictures: a program of the machine recognises their text. Here it is a scripted one."""

import hashlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image

from readers import process, scans
from readers.formats.result import Extracted, ReaderError
from readers.outside import places, programs, recognition
from readers.outside.places import RECOGNISED
from readers.process import active_layers
from readers.tests import samples

HEAD = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext"
TABLE = "\n".join(
    (
        *(HEAD, "1\t1\t0\t0\t0\t0\t0\t0\t9\t9\t-1\t", "5\t1\t1\t1\t1\t1\t0\t0\t9\t9\t96.5\tTwelve"),
        *("5\t1\t1\t1\t1\t2\t0\t0\t9\t9\t90.5\tducks", '5\t1\t1\t1\t2\t1\t0\t0\t9\t9\t80\t"here'),
        *("5\t1\t1\t2\t1\t1\t0\t0\t9\t9\t85\tFour", "5\t1\t2\t1\t1\t1\t0\t0\t9\t9\t7\t~;", ""),
    )
)


def test_words_become_lines_and_paragraphs_and_specks_are_left_out() -> None:
    read = recognition.parse_table(TABLE)
    assert (read.text, read.confidence, len(read.places)) == ('Twelve ducks\n"here\n\nFour', 88.0, 4)
    assert recognition.parse_table(HEAD) == recognition.Recognised("", 0.0, [])


def tesseract(folder: Path, then: str) -> None:
    """Install a scripted program. It knows two languages, and prints the output of `then` for each page."""
    languages = "printf 'List of available languages (3):\\neng\\nosd\\nvie\\n'; exit 0"
    program(folder, "tesseract", f'[ "$1" = --list-langs ] && {{ {languages}; }}\n{then}')


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if len(active_layers()) < 2:
        pytest.skip("without both layers of confinement no other program sees a file")
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def scanned(folder: Path, *, words: str = "") -> Path:
    """A PDF of two pages that are pictures; with `words`, the first has text."""
    path = folder / "scan.pdf"
    if words:
        path.write_bytes(samples.pdf([words, ""]))
    else:
        out, pages = io.BytesIO(), [Image.new("L", (200, 300), 255) for _ in range(2)]
        pages[0].save(out, "PDF", save_all=True, append_images=pages[1:])
        path.write_bytes(out.getvalue())
    return path


def layered(folder: Path, *layers: str) -> Path:
    """Return the path of a PDF of pictures, each with the recognised text of another program."""
    document = pypdfium2.PdfDocument(samples.pdf(layers))
    for page in document:
        out = io.BytesIO()
        Image.new("L", (200, 300), 255).save(out, "JPEG")
        picture = pypdfium2.PdfImage.new(document)
        picture.load_jpeg(out, inline=True)
        picture.set_matrix(pypdfium2.PdfMatrix().scale(*page.get_size()))
        page.insert_obj(picture)
        page.gen_content()
    path = folder / "layered.pdf"
    document.save(path)
    return path


WORDS = [
    f"{first}{second}" for first in ("har", "wat", "mas", "duc") for second in ("bour", "ering", "ters", "kling", "der")
]


def page_of_words(words: Sequence[str], sure: int) -> str:
    rows = (f"5\t1\t1\t1\t{number // 5}\t1\t0\t0\t9\t9\t{sure}\t{word}" for number, word in enumerate(words))
    return "\n".join((HEAD, *rows, ""))


@pytest.mark.parametrize(
    ("sure", "words", "layer_stays"),
    [(95, WORDS, False), (70, WORDS, True), (95, WORDS[:15], True)],
    ids=["a sure one replaces it", "an unsure one does not", "a few words do not"],
)
def test_the_text_that_a_scan_brings_along_gives_way_to_a_better_one(
    on_the_machine: Path, tmp_path: Path, sure: int, words: list[str], layer_stays: bool
) -> None:
    tesseract(on_the_machine, f"cat <<'END'\n{page_of_words(words, sure)}END")
    fits = "\n".join(WORDS)
    extracted = scans.read(layered(tmp_path, fits, "hxrb0ur vvat mxs", fits), "scan.pdf")
    assert [RECOGNISED in text for text in texts(extracted)] == [False, not layer_stays, False]
    assert extracted.left_out == ({} if layer_stays else {"layer": 1})


def test_a_document_whose_text_fits_on_three_of_its_pages_is_believed(on_the_machine: Path, tmp_path: Path) -> None:
    tesseract(on_the_machine, f"cat <<'END'\n{page_of_words(WORDS, 95)}END")
    fits = "\n".join(WORDS)
    extracted = scans.read(layered(tmp_path, fits, "hxrb0ur", fits, fits, fits), "scan.pdf")
    assert texts(extracted)[1] == "hxrb0ur" and "layer" not in extracted.left_out


def texts(extracted: Extracted) -> list[str]:
    return [extracted.text[start:end] for start, end in extracted.spans]


def test_pages_without_text_are_recognised_one_by_one(on_the_machine: Path, tmp_path: Path) -> None:
    tesseract(on_the_machine, f"[ -s page.png ] && cat <<'END'\n{TABLE}END")
    progress: list[tuple[int, int]] = []
    extracted = scans.read(scanned(tmp_path), "scan.pdf", progress=lambda *at: progress.append(at))
    expected = '[Recognised on a picture: eng, vie, 88 % sure]\n\nTwelve ducks\n"here\n\nFour'
    assert texts(extracted) == [expected, expected]
    assert (extracted.left_out, progress) == ({"recognised": 2}, [(1, 2), (2, 2)])
    mixed = scans.read(scanned(tmp_path, words="Typed."), "scan.pdf")
    assert (texts(mixed), mixed.left_out) == (["Typed.", expected], {"recognised": 1})


def upside_down(folder: Path) -> tuple[Path, str]:
    """A PDF of one page with a bar at its top, and the digest of its picture with the bar at the bottom."""
    out, picture = io.BytesIO(), Image.new("L", (200, 300), 255)
    picture.paste(0, (0, 0, 150, 20))
    picture.save(out, "PDF")
    path = folder / "turned.pdf"
    path.write_bytes(out.getvalue())
    plain, turned = (process.draw_page(path, 0, turned=turned)[1] for turned in (False, True))
    assert Image.open(io.BytesIO(turned)).tobytes() == Image.open(io.BytesIO(plain)).rotate(180).tobytes()
    return path, hashlib.sha256(turned).hexdigest()


@pytest.mark.parametrize(("sure", "expected"), [(70, "turned"), (95, "as it is")])
def test_a_page_of_which_little_is_sure_is_looked_at_upside_down_too(
    on_the_machine: Path, tmp_path: Path, sure: int, expected: str
) -> None:
    path, digest = upside_down(tmp_path)
    page = "1\t1\t0\t0\t0\t0\t0\t0\t100\t100\t-1\t"
    word = "5\t1\t1\t1\t1\t1\t10\t20\t20\t10"
    tables = [f"{HEAD}\n{page}\n{word}\t{how}\t{words}" for how, words in ((sure, "as it is"), (97, "turned, as is"))]
    here, turned = (f"cat <<'END'\n{table}\nEND\n" for table in tables)
    tesseract(on_the_machine, f"if sha256sum page.png | grep -q {digest}; then {turned}else {here}fi")
    extracted = scans.read(path, "turned.pdf")
    assert expected in texts(extracted)[0]
    place = places.unpack_places(extracted.places[0])[0]
    assert tuple(place) == ((7_000, 7_000, 9_000, 8_000) if expected == "turned" else (1_000, 2_000, 3_000, 3_000))


def test_a_model_reads_pages_where_one_is_chosen_and_gives_way_where_it_fails(
    on_the_machine: Path, tmp_path: Path
) -> None:
    tesseract(on_the_machine, f"cat <<'END'\n{TABLE}END")
    answers = iter(["# Read by the model", None])

    def ask(picture: bytes) -> str:
        assert picture.startswith(b"\x89PNG")
        if (answer := next(answers)) is None:
            raise ReaderError("scan_unread")
        return answer

    extracted = scans.read(scanned(tmp_path), "scan.pdf", recogniser=scans.Recogniser("sees", ask))
    first, second = texts(extracted)
    assert first == "[Recognised on a picture: sees]\n\n# Read by the model"
    assert second.startswith("[Recognised on a picture: eng, vie, 88 % sure]")
    assert extracted.left_out == {"recognised": 2, "unread": 1}


def test_a_model_that_fails_three_times_is_asked_no_more() -> None:
    calls = []

    def ask(picture: bytes) -> str:
        calls.append(picture)
        raise ReaderError("scan_unread")

    recogniser = scans.Recogniser("sees", ask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        assert [recogniser.page(bytes([number])).text for number in range(5)] == [""] * 5
    assert (len(calls), recogniser.failed) == (3, 5)


def test_what_is_not_recognised_is_said_as_before(on_the_machine: Path, tmp_path: Path) -> None:
    with pytest.raises(ReaderError) as caught:
        scans.read(scanned(tmp_path), "scan.pdf")
    assert caught.value.code == "no_text"
    tesseract(on_the_machine, "exit 1")
    assert scans.read(scanned(tmp_path, words="Typed."), "scan.pdf").left_out == {"scans": 1}
    with pytest.raises(ReaderError) as caught:
        scans.read(scanned(tmp_path), "scan.pdf")
    assert caught.value.code == "no_text"


def test_a_program_reads_the_system_writes_its_own_folder_and_has_no_network(
    on_the_machine: Path, tmp_path: Path
) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "own"
    secret.write_text("sesame")
    folder.mkdir()
    tries = (
        f"cat {secret}; echo x > {tmp_path}/out; echo kept > kept; cat kept; cat /etc/passwd > /dev/null && echo system"
    )
    assert programs.run(folder, "/bin/sh", "-c", tries).split() == [b"kept", b"system"]
    assert not (tmp_path / "out").exists()
    # An interpreter outside the system's folders is not run, so the network is asked for by the shell's own means.
    perl = programs.find("perl")
    if perl and sys.platform == "linux":
        script = (
            "socket(my $s, 2, 1, 0) ? print 'inet ' : print 'no '; socket(my $u, 1, 1, 0) ? print 'unix' : print 'none'"
        )
        assert programs.run(folder, perl, "-MSocket", "-e", script).split() == [b"no", b"unix"]
