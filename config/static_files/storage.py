"""Static files as they are served: named by their content, compressed, and a stylesheet with its imports in one."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

import brotli
from django.contrib.staticfiles.storage import HashedFilesMixin
from django.core.files.base import ContentFile
from django.core.files.storage import Storage
from whitenoise.compress import Compressor
from whitenoise.storage import CompressedManifestStaticFilesStorage

from config.static_files.originals import fingerprint

# What the files were made from, beside the manifest that names the files.
ORIGINALS_NAME = "originals.txt"
# Level 11 makes files a tenth smaller and takes forty times as long, at the first start of every version.
BROTLI_LEVEL = 8
Paths = Mapping[str, tuple[Storage, str]]


class QuickCompressor(Compressor):
    @staticmethod
    def compress_brotli(data: bytes) -> bytes:
        compressed: bytes = brotli.compress(data, quality=BROTLI_LEVEL)
        return compressed


class Stylesheets:
    """Opens a stylesheet of ours with every `@import "name.css";` replaced by that file, which stands beside it.

    So a page asks for one file, and in development the browser follows the imports by itself.
    """

    IMPORT = re.compile(r'^@import "([^"/]+)";$', re.MULTILINE)

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def open(self, name: str) -> ContentFile[bytes]:
        return ContentFile(self._text(name).encode())

    def _text(self, name: str) -> str:
        if name not in self._paths:
            raise FileNotFoundError(f"The stylesheet {name} is imported, and there is none.")
        storage, path = self._paths[name]
        with storage.open(path) as file:
            text = file.read().decode()
        return self.IMPORT.sub(lambda found: self._text(posixpath.join(posixpath.dirname(name), found[1])), text)


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    # Packages import modules that they do not bring along, so only ours are looked at; theirs are imported by nothing.
    patterns = (
        ("*.css", (r"""(?P<matched>url\(['"]{0,1}\s*(?P<url>.*?)["']{0,1}\))""",)),
        ("js/*.js", HashedFilesMixin._js_module_import_aggregation_patterns[1]),  # type: ignore[attr-defined]  # not in the stubs
    )
    keep_only_hashed_files = True

    def create_compressor(self, **options: Any) -> Compressor:
        return QuickCompressor(**options)  # type: ignore[no-untyped-call]

    def post_process(self, paths: Paths, dry_run: bool = False, **options: Any) -> Iterator[Any]:
        ours = Stylesheets(paths)
        whole = {name: (ours, name) if name.startswith("css/") else place for name, place in paths.items()}
        yield from super().post_process(whole, dry_run=dry_run, **options)  # type: ignore[no-untyped-call]
        if not dry_run:
            self.delete(ORIGINALS_NAME)
            self.save(ORIGINALS_NAME, ContentFile(fingerprint().encode()))

    def stored_name(self, name: str) -> str:
        """Raises ValueError for what was not collected."""
        try:
            return super().stored_name(name)
        except ValueError as error:
            raise ValueError(
                f"{name} is not among the static files in {self.location}. A web server collects them when it starts;"
                " without one, run: manage.py collectstatic"
            ) from error
