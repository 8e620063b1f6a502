import pytest

from files.templatetags.kinds import kind_in_words
from readers.api import media_types

NAMED = "PDF DOCX PPTX XLSX DOC PPT XLS XLSB MSG ZIP EPUB HTML MAIL MBOX NOTEBOOK RTF ODT ODS ODP SVG HEIC"
READ = [getattr(media_types, name) for name in NAMED.split()]


@pytest.mark.parametrize("media_type", [*READ, *media_types.IMAGES, *media_types.CONVERTED])
def test_what_is_read_has_an_everyday_name(media_type: str) -> None:
    assert "/" not in str(kind_in_words(media_type))


def test_what_has_none_keeps_its_media_type() -> None:
    assert kind_in_words("text/x-rust") == "text/x-rust"
    assert kind_in_words("") == "–"
