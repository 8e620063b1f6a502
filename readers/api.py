"""Export the interface of the package. The product may import this module and `readers.confinement` only.

import-linter checks that. This module loads no library that parses a file format: only the confined process that
reads a file loads these libraries.
"""

from readers.formats import media_types
from readers.formats.result import SENTENCES, Extracted, ReaderError, ReaderSentence
from readers.nested.closed import closed_names, closed_notice, with_opened
from readers.outside.photos import available as photos_available
from readers.outside.places import RECOGNISED, WordPlace, places_of_passage, unpack_places
from readers.outside.recognition import languages as recognition_languages
from readers.process import ENVIRONMENT, ROOT, active_layers, draw_marked_page, extract
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
    "active_layers",
    "closed_names",
    "closed_notice",
    "draw_marked_page",
    "extract",
    "media_types",
    "page_text",
    "photos_available",
    "places_of_passage",
    "read",
    "recognition_languages",
    "unpack_places",
    "with_opened",
]
