"""Pages show pictures that exist, in words too, and each picture has a page."""

import re
from pathlib import Path

import pytest
from django.test import Client
from markdown_it.token import Token
from PIL import Image

from accounts.models import User
from config.help import guide
from config.help.rendering import PARSER, render
from tests.docs.files import DOCS, markdown
from tests.product import ROOT

PICTURES = DOCS / "pictures"
MAX_BYTES, MAX_BYTES_OF_ONE = 6_000_000, 1_500_000
SOURCE = re.compile(r'<img src="([^"]*)"')


def images(file: Path) -> list[Token]:
    children = (child for token in PARSER.parse(file.read_text()) for child in token.children or [])
    return [child for child in children if child.type == "image"]


def targets(file: Path) -> list[Path]:
    return [(file.parent / str(image.attrs["src"])).resolve() for image in images(file)]


@pytest.fixture
def reader(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_user("reader", password="of pictures"))
    return client


def test_pages_and_pictures_belong_together() -> None:
    shown = {target for file in markdown() for target in targets(file)}
    stored = set(PICTURES.iterdir())
    assert (shown - stored, stored - shown) == (set(), set())


@pytest.mark.parametrize("file", [file for file in markdown() if images(file)], ids=lambda file: file.name)
def test_each_picture_is_described_in_words(file: Path) -> None:
    assert [image.attrs["src"] for image in images(file) if len(image.content.split()) < 3] == []


def test_pictures_are_small() -> None:
    sizes = [file.stat().st_size for file in PICTURES.iterdir()]
    assert (sum(sizes) <= MAX_BYTES, max(sizes) <= MAX_BYTES_OF_ONE) == (True, True)


def test_the_film_moves() -> None:
    moving = [file.name for file in PICTURES.iterdir() if getattr(Image.open(file), "n_frames", 1) > 1]
    assert [f"docs/pictures/{name}" in (ROOT / "README.md").read_text() for name in moving] == [True]


def test_the_guide_shows_its_pictures(reader: Client) -> None:
    sources = {source for page in guide.pages("en") for source in SOURCE.findall(render(page))}
    assert sources
    for source in sources:
        answer = reader.get(source)
        assert (answer.status_code, answer["Content-Type"]) == (200, "image/webp"), source


def test_no_other_file_is_sent_as_a_picture(reader: Client) -> None:
    assert reader.get("/help/pictures/index.md").status_code == 404
    assert Client().get(f"/help/pictures/{min(PICTURES.iterdir()).name}").status_code == 302
