"""Collect the static files: with hashed names, minified, compressed, and with each stylesheet's imports included in it.

The web server collects them when it starts, so that operators need not run a command first.
"""

import hashlib
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import brotli
import rcssmin
import rjsmin
from django.conf import settings
from django.contrib.staticfiles.apps import StaticFilesConfig
from django.contrib.staticfiles.finders import get_finders
from django.contrib.staticfiles.management.commands.collectstatic import Command
from django.contrib.staticfiles.storage import HashedFilesMixin
from django.core import checks
from django.core.files.base import ContentFile, File
from django.core.files.storage import Storage
from django.core.management import call_command
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from whitenoise.compress import Compressor
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import NotARegularFileError
from whitenoise.storage import CompressedManifestStaticFilesStorage

from config import browser_packages
from config.embedded.paths import StartError

# The file with the fingerprint of the original files, in the folder of the manifest.
ORIGINALS_NAME = "originals.txt"
COLLECTING = ".new-"  # the prefix of a directory in `STATIC_ROOT` in which a process collects
# Level 11 makes files a tenth smaller but takes forty times as long, and every version's first start would wait for it.
BROTLI_LEVEL = 8
# No page uses these. django-htmx contains copies of htmx, but pages use the browser packages' htmx. The admin uses
# jquery.js and xregexp.js only with DEBUG, and nothing is collected then.
UNUSED = ("*.map", "redoc", "rest_framework", "django_htmx", "packages/*.json", "jquery.js", "xregexp.js")
Paths = Mapping[str, tuple[Storage, str]]
# By folder and suffix. A first visit loads a fifth less, which pays for the font.
MINIFIERS: Mapping[tuple[str, str], Callable[[str], str]] = {
    ("css", ".css"): rcssmin.cssmin,
    ("js", ".js"): rjsmin.jsmin,
}


class CollectedFilesConfig(StaticFilesConfig):
    """Leaves out the files that no page uses."""

    ignore_patterns = [*StaticFilesConfig.ignore_patterns, *UNUSED]  # noqa: RUF012 - declared by Django

    def ready(self) -> None:
        super().ready()
        checks.register(check_browser_packages, checks.Tags.staticfiles)


def check_browser_packages(app_configs: object, **options: object) -> list[checks.Error]:
    """Return an error if browser packages are missing. It stops `collectstatic` and `runserver`."""
    try:
        browser_packages.check_installed()
    except StartError as error:
        return [checks.Error(str(error), id="glasshouse.E001")]
    return []


class QuickCompressor(Compressor):
    @staticmethod
    def compress_brotli(data: bytes) -> bytes:
        compressed: bytes = brotli.compress(data, quality=BROTLI_LEVEL)
        return compressed


class Stylesheets:
    """Opens our stylesheets with every `@import "name.css";` replaced by the content of that file in the same folder.

    So a page loads one file. In development the browser follows the imports itself.
    """

    IMPORT = re.compile(r'^@import "([^"/]+)";$', re.MULTILINE)

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def open(self, name: str) -> ContentFile[bytes]:
        return ContentFile(self._text(name).encode())

    def _text(self, name: str) -> str:
        if name not in self._paths:
            raise FileNotFoundError(f"The stylesheet {name} is imported, but it does not exist.")
        storage, path = self._paths[name]
        with storage.open(path) as file:
            text = file.read().decode()
        return self.IMPORT.sub(lambda match: self._text(posixpath.join(posixpath.dirname(name), match[1])), text)


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    # Only our imports are rewritten: packages import modules that they do not contain, and no page uses those modules.
    patterns = (
        ("*.css", (r"""(?P<matched>url\(['"]{0,1}\s*(?P<url>.*?)["']{0,1}\))""",)),
        ("js/*.js", HashedFilesMixin._js_module_import_aggregation_patterns[1]),  # type: ignore[attr-defined]  # not in the stubs
    )
    keep_only_hashed_files = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]  # has no annotations
        self._urls: dict[str, str] = {}

    def url(self, name: str | None, force: bool = False) -> str:
        """Return the URL of a file, cached: a page has some fifty such URLs, mostly of icons.

        A cached URL stays valid, since the manifest does not change while a process runs.
        """
        key = str(name)
        if force or settings.DEBUG:
            return super().url(key, force)
        if key not in self._urls:
            self._urls[key] = super().url(key)
        return self._urls[key]

    def create_compressor(self, **options: Any) -> Compressor:
        return QuickCompressor(**options)  # type: ignore[no-untyped-call]  # has no annotations

    def _save(self, name: str, content: File[bytes]) -> str:
        """Store a file. Our own scripts and stylesheets are stored without comments and needless blanks.

        Their hashed names come from the text before, whose imports Django finds line by line.
        """
        minify = MINIFIERS.get((name.partition("/")[0], PurePosixPath(name).suffix))
        if minify is not None:
            content.seek(0)
            content = ContentFile(minify(content.read().decode()).encode())
        saved_name: str = super()._save(name, content)  # type: ignore[misc]  # not in the stubs
        return saved_name

    def post_process(self, paths: Paths, dry_run: bool = False, **options: Any) -> Iterator[Any]:
        stylesheets = Stylesheets(paths)
        joined_paths = {
            name: (stylesheets, name) if name.startswith("css/") else place for name, place in paths.items()
        }
        yield from super().post_process(joined_paths, dry_run=dry_run, **options)  # type: ignore[no-untyped-call]  # has no annotations
        if not dry_run:
            self.delete(ORIGINALS_NAME)
            self.save(ORIGINALS_NAME, ContentFile(fingerprint().encode()))

    def stored_name(self, name: str) -> str:
        """Return the name with its hash. Raises ValueError for a file that was not collected."""
        try:
            return super().stored_name(name)
        except ValueError as error:
            raise ValueError(
                f"{name} is not among the static files in {self.location}. A web server collects them when it starts;"
                " without one, run: manage.py collectstatic"
            ) from error


class CollectedFilesMiddleware(WhiteNoiseMiddleware):
    """Serves the collected files, including files that another process collects later.

    While an upgrade restarts one process after the other, a browser may request a file of the new version from an old
    process. The middleware skips the temporary directory in which another process is collecting.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:  # type: ignore[override]  # as Whitenoise's middleware has it
        url = request.path_info
        if not self.autorefresh and url.startswith(self.static_prefix) and url not in self.files:
            self._look_again(url)
        response: HttpResponseBase = super().__call__(request)  # type: ignore[no-untyped-call]  # has no annotations
        return response

    def _look_again(self, url: str) -> None:
        name = url[len(self.static_prefix) :]
        if name.startswith(COLLECTING) or not self.url_is_canonical(url):  # type: ignore[no-untyped-call]  # as above
            return
        with suppress(NotARegularFileError):
            self.files[url] = self.find_file_at_path(os.path.join(self.static_root, name), url)  # type: ignore[no-untyped-call]  # as above

    def update_files_dictionary(self, root: str, prefix: str) -> None:
        stats = dict(_collected(root))
        for path in stats:
            url = prefix + Path(path).relative_to(root).as_posix()
            self.add_file_to_dictionary(url, path, stat_cache=stats)  # type: ignore[no-untyped-call]  # has no annotations


def _collected(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below a folder, except the temporary directories in which a process is collecting."""
    for entry in os.scandir(folder):
        if entry.name.startswith(COLLECTING):
            continue
        if entry.is_dir():
            yield from _collected(entry.path)
        else:
            yield entry.path, entry.stat()


def collect_changed() -> None:
    """Fill `STATIC_ROOT`, unless its files were made from the same originals.

    With DEBUG this does nothing: files are served from their folders. Names contain a hash, so files of the previous
    version stay for its pages and processes. The manifest is moved last, so all its files exist, and several processes
    may collect at once. Raises StartError if the directory cannot be written or browser packages are missing.
    """
    root = Path(settings.STATIC_ROOT)
    if settings.DEBUG or _stored_fingerprint(root) == fingerprint():
        return
    browser_packages.check_installed()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=COLLECTING) as directory:
            new = Path(directory)
            command = Command()
            command.storage = HashedStaticFiles(location=new)
            call_command(command, interactive=False, verbosity=0)
            _move(new, root, last=(HashedStaticFiles.manifest_name, ORIGINALS_NAME))
    except OSError as error:
        raise StartError(
            f"Static files cannot be collected in {root} ({error.strerror}): run manage.py collectstatic as somebody"
            " who can write there, or set STATIC_ROOT to another directory."
        ) from error


def _stored_fingerprint(root: Path) -> str:
    try:
        return (root / ORIGINALS_NAME).read_text()
    except OSError:
        return ""


def _move(new: Path, root: Path, *, last: tuple[str, ...]) -> None:
    # Only we may read the data directory. A directory outside of it may be served by another web server.
    mask = 0o700 if root.is_relative_to(settings.DATA_DIR) else 0o755
    paths = [path.relative_to(new) for path in sorted(new.rglob("*"))]
    for folder in (Path(), *(name for name in paths if (new / name).is_dir())):
        (root / folder).mkdir(exist_ok=True)
        with suppress(PermissionError):  # another user owns it, and lets us write
            (root / folder).chmod(mask)
    names = [name for name in paths if (new / name).is_file()]
    for name in sorted(names, key=lambda name: last.index(str(name)) if str(name) in last else -1):
        (new / name).chmod(0o644 & mask)
        os.replace(new / name, root / name)


def fingerprint() -> str:
    """Return a hash of the names and contents of all originals, of this module, and of the browser packages' lock.

    The lock is included so that a changed lock leads to a check of the installed packages. Takes some 15 ms for 300
    files with 5 MB in total.
    """
    digest = hashlib.blake2b(digest_size=20)
    lock = browser_packages.FOLDER / browser_packages.LOCK_NAME
    for name, path in sorted([("", Path(__file__)), ("", lock), *_files()]):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _files() -> Iterator[tuple[str, Path]]:
    for finder in get_finders():
        for path, storage in finder.list(CollectedFilesConfig.ignore_patterns):
            yield f"{getattr(storage, 'prefix', None) or ''}/{path}", Path(storage.path(path))
