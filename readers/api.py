"""The front door: what the product imports of this package, beside `readers.confinement`.

Everything else is the package's own; import-linter refuses its import from elsewhere. The modules behind this one load
no library of a format: these are loaded by the confined process that reads a file.
"""

from readers.formats import media_types
from readers.formats.result import SENTENCES, Extracted, ReaderError, ReaderSentence
from readers.nested.closed import closed_names, closed_notice, with_opened
from readers.outside.photos import available as photos_available
from readers.outside.places import RECOGNISED, Place, of_passage, unpacked
from readers.outside.recognition import languages as recognition_languages
from readers.process import ENVIRONMENT, ROOT, extract, layers_that_hold, shown_page
from readers.scans import Recogniser, read
from readers.text.html import page_text

__all__ = [
    "ENVIRONMENT",
    "RECOGNISED",
    "ROOT",
    "SENTENCES",
    "Extracted",
    "Place",
    "ReaderError",
    "ReaderSentence",
    "Recogniser",
    "closed_names",
    "closed_notice",
    "extract",
    "layers_that_hold",
    "media_types",
    "of_passage",
    "page_text",
    "photos_available",
    "read",
    "recognition_languages",
    "shown_page",
    "unpacked",
    "with_opened",
]
