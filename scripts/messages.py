"""`make messages` writes every message of the product into `locale/*/LC_MESSAGES/django.po`, to be translated.

xgettext reads the Python code, and the templates after Django has turned them into Python. The names of the admin's
fields, columns and groups come from `config.admin_words`, with a context of their own.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import django
import polib
import unfold
from django.conf import settings
from django.utils.translation import get_language_info, to_locale
from django.utils.translation.template import templatize

from core.i18n import ADMIN
from tests.product import ROOT

APPS = (
    *("accounts", "chat", "config", "contrib", "core", "files", "llm", "personas", "projects", "readers"),
    "workspace",
)
SOURCES = (*(f"{app}/**/*.py" for app in APPS), "templates/**/*.html")
UNFOLD = ("*.py", "mixins/*.py", "templates/**/*.html")  # without its parts for packages that are not installed
# Functions and classes whose argument of this number is a message. xgettext knows `gettext` and its like by itself.
KEYWORDS = (
    *("gettext_noop", "gettext_lazy", "ngettext_lazy:1,2", "pgettext:1c,2", "pgettext_lazy:1c,2"),
    "Sentence",
    *("ProductError:2", "ModelError:2", "ContextError:2", "NotProposed:2"),
    *("NotFound:1", "or_404:2", "identifier:2", "get_or_404:3", "choice:4"),
)


class CatalogueMessage(NamedTuple):
    """A message: its singular, its plural if it has one, and its context."""

    one: str
    many: str = ""
    context: str = ""


def in_code(root: Path, patterns: Iterable[str]) -> Iterator[tuple[CatalogueMessage, str]]:
    """Yield the messages in the modules and templates below `root` that match a pattern, each with its file."""
    with TemporaryDirectory() as directory:
        read = Path(directory)
        for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
            if not {"migrations", "tests"}.intersection(path.relative_to(root).parts):
                copy = read / path.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                text = path.read_text()
                copy.write_text(templatize(text) if path.suffix == ".html" else text)
        names = sorted(path.relative_to(read).as_posix() for path in read.rglob("*") if path.is_file())
        keywords = [f"--keyword={keyword}" for keyword in KEYWORDS]
        command = ["xgettext", "--language=Python", "--from-code=UTF-8", "--output=-", "--files-from=-", *keywords]
        output = subprocess.run(command, cwd=read, input="\n".join(names), text=True, capture_output=True, check=True)
    for entry in polib.pofile(output.stdout):
        for place, _line in entry.occurrences:
            yield key(entry), place


def in_frame() -> Iterator[tuple[CatalogueMessage, str]]:
    """Yield the messages of Unfold, and those of Django's admin that Django has not translated into our languages."""
    root, codes = Path(django.__file__).parent, [path.name for path in (ROOT / "locale").iterdir()]
    entries, done = list[polib.POEntry](), set[str]()
    for app in ("conf", "contrib/admin", "contrib/auth"):
        entries += (of_app := list(polib.pofile(str(root / app / "locale/en/LC_MESSAGES/django.po"))))
        translations = [polib.pofile(str(root / app / f"locale/{code}/LC_MESSAGES/django.po")) for code in codes]
        left = {each.msgid for of_language in translations for each in of_language.untranslated_entries()}
        had = set.intersection(*({each.msgid for each in of_language} for of_language in translations))
        done |= {each.msgid for each in of_app if each.msgid in had - left}
    of_admin = (each for each in entries if not each.msgctxt and "contrib" in each.occurrences[0][0])
    shown = [key(each) for each in of_admin]
    shown += [message for message, _place in in_code(Path(unfold.__file__).parent, UNFOLD) if not message.context]
    yield from ((message, "unfold") for message in shown if message.one not in done)


def in_admin() -> Iterator[tuple[CatalogueMessage, str]]:
    from config import admin, admin_words  # noqa: PLC0415 - only once Django is set up

    yield from ((CatalogueMessage(word, context=ADMIN), "config/admin_words.py") for word in sorted(admin_words.words))
    titles = (*admin.GROUPS, *admin.PLACES, *admin.MODEL_TITLES.values())
    yield from ((CatalogueMessage(title, context=ADMIN), "config/admin.py") for title in titles)


def all_messages() -> dict[CatalogueMessage, set[str]]:
    """Return every message of the product with its files."""
    places: dict[CatalogueMessage, set[str]] = {}
    for message, place in (*in_code(ROOT, SOURCES), *in_admin(), *in_frame()):
        places.setdefault(message, set()).add(place)
    return places


def update(path: Path, messages: dict[CatalogueMessage, set[str]]) -> tuple[int, int]:
    """Write the messages into a catalogue and keep their translations.

    Returns how many have no translation, and how many old messages were dropped.
    """
    catalogue = polib.pofile(str(path), wrapwidth=120)
    before = {key(each): each for each in catalogue}
    forms = int(re.findall(r"nplurals=(\d+)", catalogue.metadata["Plural-Forms"])[0])
    catalogue.clear()
    for message, places in sorted(messages.items(), key=lambda each: (min(each[1]), each[0])):
        entry = before.pop(message, None) or _entry(message, forms)
        entry.occurrences = [(place, "") for place in sorted(places)]
        catalogue.append(entry)
    catalogue.save()
    return len(catalogue.untranslated_entries()), len(before)


def key(entry: polib.POEntry) -> CatalogueMessage:
    return CatalogueMessage(entry.msgid, entry.msgid_plural, entry.msgctxt or "")


def _entry(message: CatalogueMessage, forms: int) -> polib.POEntry:
    plural = {"msgid_plural": message.many, "msgstr_plural": dict.fromkeys(range(forms), "")} if message.many else {}
    flags = ["python-format"] if re.search(r"%\(\w+\)[sd]", message.one) else []
    return polib.POEntry(msgid=message.one, msgctxt=message.context or None, flags=flags, **plural)


def begin(language: str) -> None:
    """Write an empty catalogue for a language that has none. Its rule of plurals is taken from Django's catalogue."""
    path = ROOT / "locale" / language / "LC_MESSAGES" / "django.po"
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    of_django = Path(django.__path__[0], "conf", "locale", to_locale(language), "LC_MESSAGES", "django.mo")
    catalogue = polib.POFile(wrapwidth=120)
    catalogue.header = f"Glasshouse in {get_language_info(language)['name']}."
    catalogue.metadata = {
        "Project-Id-Version": "Glasshouse",
        "Language": language,
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
        "Plural-Forms": polib.mofile(str(of_django)).metadata["Plural-Forms"],
    }
    catalogue.save(str(path))


def main() -> None:
    django.setup()
    for language, _name in settings.LANGUAGES:
        if language != settings.LANGUAGE_CODE:
            begin(language)
    for path in sorted((ROOT / "locale").glob("*/LC_MESSAGES/django.po")):
        missing, dropped = update(path, all_messages())
        print(f"{path.relative_to(ROOT)}: {missing} without translation, {dropped} dropped")


if __name__ == "__main__":
    main()
