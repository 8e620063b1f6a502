"""`make messages`: every sentence of the product into `locale/*/LC_MESSAGES/django.po`, where it is translated.

Templates and calls of gettext are read as Django means them. Beside these, every string of Python code that is a
sentence goes in under the context `sentence` (core/i18n.py says why), unless no person meets it: see `PROGRAMS`.
What the admin calls its fields, columns and groups has a context of its own: `config.admin_words` knows it.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import django
import polib
import unfold
from django.conf import settings
from django.template import Context, engines
from django.template.base import Lexer, Template
from django.templatetags.i18n import BlockTranslateNode, TranslateNode
from django.utils.translation import get_language_info, to_locale

from core.i18n import ADMIN
from core.sentences import CONTEXT
from personas import texts
from tests.product import ROOT

APPS = ("accounts", "audit", "chat", "config", "core", "files", "llm", "personas", "projects")
# What is here is read by administrators, models, or programs that expect a protocol's English.
PROGRAMS = re.compile(
    r"/(migrations|management/commands/(?!doctor)|embedded|net|webhooks/(?!admin)|openai_api|ag_ui|tools/(?!toolbox|mcp))"
    r"|^config/(api_docs|browser_packages|http/metrics|schema|service_urls|settings|static_files|templatetags)"
    r"|^chat/(realtime/events|context/(plan_io|rendering)|summaries/writing|texts/examples|models/summary)"
    r"|^files/index/indexing|^llm/(agent_loop|model_facts|models|types|tokens)|^personas/models"
)
MODELS = {"CONTINUE", "NOT_ALLOWED", "OF_READINGS", "TEXTS"}
# Arguments that describe fields and calls to programmers and administrators.
DESCRIPTIONS = {"help", "help_text", "description", "summary", "violation_error_message"}
# Callables and tables whose words are put into a sentence: “There is no such {what}”; and states, as in “is {status}”.
FRAGMENTS = {
    "Sentence",
    "NotFound",
    "get_or_404",
    "or_404",
    "check_person",
    "_storable",
    "_unknown",
    "changed_meanwhile",
    "_LAYERS",
    "_PARTS",
    "_SECRETS",
    "Finding",
    "ADVICE",
}
STATES = ("open", "doing", "waiting", "done", "dropped", "moved")
GETTEXT = {
    **dict.fromkeys(("_", "gettext", "gettext_lazy", "gettext_noop"), ("one",)),
    **dict.fromkeys(("ngettext", "ngettext_lazy"), ("one", "many")),
    **dict.fromkeys(("pgettext", "pgettext_lazy"), ("context", "one")),
}


SENTENCE = r"[A-Z“{][^\n]* [^\n]*[.?]"


class Message(NamedTuple):
    one: str
    many: str = ""
    context: str = ""


def in_templates() -> Iterator[tuple[Message, str]]:
    for path in sorted((ROOT / "templates").rglob("*.html")):
        name = path.relative_to(ROOT / "templates").as_posix()
        template: Template = engines["django"].get_template(name).template  # type: ignore[attr-defined] # of Django's
        for tag in (TranslateNode, BlockTranslateNode):
            yield from ((_of_tag(node), f"templates/{name}") for node in template.nodelist.get_nodes_by_type(tag))
        for token in Lexer(template.source).tokenize():
            for words in re.findall(r'_\("([^"]+)"\)', token.contents):
                yield Message(words), f"templates/{name}"


def _of_tag(node: Any) -> Message:
    context = node.message_context.resolve(Context()) if node.message_context else ""
    if isinstance(node, TranslateNode):
        return Message(str(node.filter_expression.var.literal).replace("%", "%%"), context=context)
    many = node.render_token_list(node.plural)[0] if node.plural else ""
    return Message(node.render_token_list(node.singular)[0], many, context)


def in_python() -> Iterator[tuple[Message, str]]:
    for path in sorted(path for app in APPS for path in (ROOT / app).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        reader = _Reader(sentences=not PROGRAMS.search(name))
        reader.visit(ast.parse(path.read_text()))
        yield from ((message, name) for message in reader.found)
    yield from ((Message(state, context=CONTEXT), "projects/models/task.py") for state in STATES)
    yield from ((Message(words, context=CONTEXT), "personas/texts/") for words in _of_texts())
    yield from in_frame()
    from config import admin, admin_words  # noqa: PLC0415 - only once Django is set up

    yield from ((Message(word, context=ADMIN), "config/admin_words.py") for word in sorted(admin_words.known))
    yield from (
        (Message(title, context=ADMIN), "config/admin.py")
        for title in (*admin.GROUPS, *admin.PLACES, *admin.NAMED.values())
    )


def _of_texts() -> Iterator[str]:
    """What administrators read of the texts that models get; never these themselves."""
    yield from texts.GROUPS
    for name, text in texts.TEXTS.items():
        title = "Guidance for {tool}" if name.startswith("guidance_") else text.title
        yield from (title, text.purpose, *text.placeholders.values())


def in_frame() -> Iterator[tuple[Message, str]]:
    """The admin's frame: what Django has not translated into each of our languages, and Unfold, which has nothing."""
    root, codes = Path(django.__file__).parent, [path.name for path in (ROOT / "locale").iterdir()]
    entries, done = list[polib.POEntry](), set[str]()
    for app in ("conf", "contrib/admin", "contrib/auth"):
        entries += (of_app := list(polib.pofile(str(root / app / "locale/en/LC_MESSAGES/django.po"))))
        translations = [polib.pofile(str(root / app / f"locale/{code}/LC_MESSAGES/django.po")) for code in codes]
        left = {each.msgid for of_language in translations for each in of_language.untranslated_entries()}
        had = set.intersection(*({each.msgid for each in of_language} for of_language in translations))
        done |= {each.msgid for each in of_app if each.msgid in had - left}
    of_admin = (each for each in entries if not each.msgctxt and "contrib" in each.occurrences[0][0])
    shown = [Message(each.msgid, each.msgid_plural) for each in of_admin]
    root = Path(unfold.__file__).parent
    for path in sorted((root / "templates").rglob("*.html")):
        shown += [Message(words) for _, words in re.findall(r"{% trans(?:late)? (['\"])(.+?)\1", path.read_text())]
    for path in sorted((*root.glob("*.py"), *root.glob("mixins/*.py"))):
        reader = _Reader(sentences=False)
        reader.visit(ast.parse(path.read_text()))
        shown += [message for message in reader.found if not message.context]
    yield from ((message, "unfold") for message in shown if message.one not in done)


class _Reader(ast.NodeVisitor):
    """What a module says; without `sentences` only what it passes to gettext, and what its tools say they do."""

    def __init__(self, *, sentences: bool) -> None:
        self.sentences = sentences
        self.found: list[Message] = []

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func).rsplit(".", 1)[-1]
        words = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if called in GETTEXT and words:
            self.found.append(Message(**dict(zip(GETTEXT[called], words, strict=False))))
            return
        if called in FRAGMENTS and self.sentences:
            self._keep(node.args[called == "Finding" :])  # whose first word is a state
        if not ast.unparse(node.func).startswith("log"):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in DESCRIPTIONS:
            self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Call):
                self.visit(name)
            if not (isinstance(name, ast.Constant) and name.value in DESCRIPTIONS):
                self.visit(value)

    def visit_Assign(self, node: ast.Assign) -> None:
        name = node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""
        if name == "doing" or (name in FRAGMENTS and self.sentences):
            self._keep(node.value.values if isinstance(node.value, ast.Dict) else [node.value])
        elif name not in MODELS | DESCRIPTIONS:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name == "label":
            self._keep(each for each in _strings(node) if " " in _text(each))
        else:
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if self.sentences and re.fullmatch(SENTENCE, _text(node)):
            self._keep([node])

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        if self.sentences and re.fullmatch(SENTENCE, _text(node)):
            self._keep([node])
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                self.visit(each.value)

    def _keep(self, nodes: Iterable[ast.expr]) -> None:
        texts = (_text(each) for each in nodes)
        words = re.compile("[A-Za-z]{3}")
        self.found += [Message(text, context=CONTEXT) for text in texts if words.search(re.sub(r"{\w+}", "", text))]


def _strings(node: ast.AST) -> Iterator[ast.expr]:
    """The strings and f-strings in it, without the pieces that f-strings are made of."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        yield node
        return
    for each in ast.iter_child_nodes(node):
        yield from () if isinstance(each, ast.Expr) else _strings(each)


def _text(node: ast.expr) -> str:
    """A string as it stands, an f-string with its values as named fields; else empty."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    names: list[str] = []
    return "".join(str(each.value) if isinstance(each, ast.Constant) else _field(each, names) for each in node.values)


def _field(value: ast.expr, names: list[str]) -> str:
    """Named after the last name in the expression: `len(text)` is {text}, `row.code` is {code}."""
    words = re.findall(r"[a-zA-Z_]\w*", re.sub(r"'[^']*'", "", ast.unparse(value.value)))  # type: ignore[attr-defined]
    name = words[-1].lower().strip("_")
    names.append(name)
    return f"{{{name}{names.count(name) if names.count(name) > 1 else ''}}}"


def wanted() -> dict[Message, set[str]]:
    """Every message of the product, with the files it is in."""
    found: dict[Message, set[str]] = {}
    for message, place in (*in_templates(), *in_python()):
        found.setdefault(message, set()).add(place)
    return found


def update(path: Path, messages: dict[Message, set[str]]) -> tuple[int, int]:
    """Writes what is wanted, keeps translations that still are; returns (without translation, dropped)."""
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


def key(entry: polib.POEntry) -> Message:
    return Message(entry.msgid, entry.msgid_plural, entry.msgctxt or "")


def _entry(message: Message, forms: int) -> polib.POEntry:
    plural = {"msgid_plural": message.many, "msgstr_plural": dict.fromkeys(range(forms), "")} if message.many else {}
    flags = ["python-format"] if re.search(r"%\(\w+\)[sd]", message.one) else []
    return polib.POEntry(msgid=message.one, msgctxt=message.context or None, flags=flags, **plural)


def begin(language: str) -> None:
    """The empty catalogue of a language that has none; of how many forms a plural has, Django's own says."""
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
        missing, dropped = update(path, wanted())
        print(f"{path.relative_to(ROOT)}: {missing} without translation, {dropped} dropped")


if __name__ == "__main__":
    main()
