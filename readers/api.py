"""Export the package's interface. The product imports this module and `readers.confinement`.

import-linter refuses outside imports of the other modules. The modules that are imported here load no format libraries.
Only the confined process that reads a file loads these libraries.
"""

from readers.formats import media_types
from readers.formats.result import SENTENCES, Extracted, ReaderError, ReaderSentence
from readers.nested.closed import closed_names, closed_notice, with_opened
from readers.outside.photos import available as photos_available
from readers.outside.places import RECOGNISED, WordPlace, places_of_passage, unpacked
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
    "ReaderError",
    "ReaderSentence",
    "Recogniser",
    "WordPlace",
    "closed_names",
    "closed_notice",
    "extract",
    "layers_that_hold",
    "media_types",
    "page_text",
    "photos_available",
    "places_of_passage",
    "read",
    "recognition_languages",
    "shown_page",
    "unpacked",
    "with_opened",
]
