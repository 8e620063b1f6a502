"""Everyday names of kinds of files, for pages. Programs get the media type."""

from django import template
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from readers.api import media_types

register = template.Library()

KINDS: dict[str, str | Promise] = {
    media_types.PDF: "PDF",
    **dict.fromkeys(
        (media_types.DOCX, media_types.DOC, media_types.RTF, media_types.ODT), gettext_lazy("Text document")
    ),
    **dict.fromkeys(
        (media_types.XLSX, media_types.XLS, media_types.XLSB, media_types.ODS), gettext_lazy("Spreadsheet")
    ),
    **dict.fromkeys((media_types.PPTX, media_types.PPT, media_types.ODP), gettext_lazy("Slides")),
    **dict.fromkeys((media_types.MSG, media_types.MAIL), gettext_lazy("E-mail")),
    media_types.MBOX: gettext_lazy("Mailbox"),
    media_types.ZIP: gettext_lazy("Archive of files"),
    media_types.EPUB: gettext_lazy("Book (EPUB)"),
    media_types.HTML: gettext_lazy("Web page"),
    media_types.NOTEBOOK: gettext_lazy("Notebook"),
    **dict.fromkeys(("text/csv", "text/tab-separated-values"), gettext_lazy("Table")),
    "text/plain": gettext_lazy("Plain text"),
    "text/markdown": "Markdown",
}


@register.filter
def kind_in_words(media_type: str) -> str | Promise:
    """Return the name of a media type, or the media type itself if it has no name. An unread file has a dash."""
    if media_type.startswith("image/"):
        return gettext_lazy("Picture")
    if media_type.startswith("audio/"):
        return gettext_lazy("Recording")
    return KINDS.get(media_type, media_type or "–")
