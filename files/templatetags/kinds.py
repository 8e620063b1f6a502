"""What people call the kind of a file, for pages; programs get its media type."""

from django import template
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from readers.formats import media_types as known

register = template.Library()

KINDS: dict[str, str | Promise] = {
    known.PDF: "PDF",
    **dict.fromkeys((known.DOCX, known.DOC, known.RTF, known.ODT), gettext_lazy("Text document")),
    **dict.fromkeys((known.XLSX, known.XLS, known.XLSB, known.ODS), gettext_lazy("Spreadsheet")),
    **dict.fromkeys((known.PPTX, known.PPT, known.ODP), gettext_lazy("Slides")),
    **dict.fromkeys((known.MSG, known.MAIL), gettext_lazy("E-mail")),
    known.MBOX: gettext_lazy("Mailbox"),
    known.ZIP: gettext_lazy("Archive of files"),
    known.EPUB: gettext_lazy("Book (EPUB)"),
    known.HTML: gettext_lazy("Web page"),
    known.NOTEBOOK: gettext_lazy("Notebook"),
    **dict.fromkeys(("text/csv", "text/tab-separated-values"), gettext_lazy("Table")),
    "text/plain": gettext_lazy("Plain text"),
    "text/markdown": "Markdown",
}


@register.filter
def kind_in_words(media_type: str) -> str | Promise:
    """A media type that has no everyday name stays as it is; of a file that was not read there is none."""
    if media_type.startswith("image/"):
        return gettext_lazy("Picture")
    return KINDS.get(media_type, media_type or "–")
