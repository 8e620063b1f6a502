"""What Ctrl+K finds while one types: conversations, messages, files, projects, personas, and places to go to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from accounts.access.sessions import SignedInRequest as Request
from accounts.models import User
from chat.conversations import search
from chat.models import Conversation

MOST = 5  # of each kind
LONGEST = 200  # characters of a query
Pieces = Sequence[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class Row:
    """A place to go to or, with `does`, something that the page does by itself. `pieces`: what was found in it, each
    piece of text with whether it matched."""

    name: str
    icon: str
    address: str = ""
    keys: str = ""
    does: str = ""
    pieces: Pieces = ()


@dataclass(frozen=True, slots=True)
class Group:
    """The first `rows` of `total`; all of them are at the address `all`. `many`: there are more than `total`."""

    label: str
    rows: list[Row]
    total: int = 0
    all: str = ""
    many: bool = field(default=False)


@require_GET
def palette(request: Request) -> HttpResponse:
    """A fragment. Without a query: the newest conversations, and all commands; with `keys` the list of shortcuts."""
    if "keys" in request.GET:
        return render(request, "ui/_shortcuts.html")
    query = request.GET.get("q", "")[:LONGEST].replace("\0", " ").strip()
    words = query.lower().split()
    matching = [each for each in commands() if all(word in each.name.lower() for word in words)]
    told = [Group(_("Commands"), matching)]
    groups = (
        [*_titles(request.user, query), *told, *_named(request.user, query)] if query else [*_recent(request), *told]
    )
    if query:
        groups += _messages(request.user, query)
    return render(request, "chat/_palette.html", {"query": query, "groups": [each for each in groups if each.rows]})


def commands() -> list[Row]:
    return [
        Row(_("New conversation"), "write", reverse("chat:home"), keys="Ctrl Shift O"),
        Row(_("Projects"), "folder", reverse("projects:list")),
        Row(_("Personas"), "persona", reverse("personas:list")),
        Row(_("Prompts"), "write", reverse("prompts:list")),
        Row(_("Tasks"), "task", reverse("tasks:today")),
        Row(_("Files"), "file", reverse("files:list")),
        Row(_("Files read whole"), "file", reverse("chat:readings")),
        Row(_("Settings"), "settings", reverse("settings:preferences")),
        Row(_("My usage"), "task", reverse("chat:usage")),
        Row(_("Import and export"), "file", reverse("chat:imports")),
        Row(_("Notify me while I look elsewhere: on or off"), "chat", does="notify"),
        Row(_("Choose several conversations"), "tick", does="choose"),
        Row(_("Narrow or wide list"), "side", keys="Ctrl B", does="rail"),
        Row(_("Keyboard shortcuts"), "key", keys="?", does="keys"),
    ]


def _conversation(row: Conversation, pieces: Pieces = ()) -> Row:
    return Row(row.title or _("New conversation"), "chat", reverse("chat:conversation", args=[row.pk]), pieces=pieces)


def _recent(request: Request) -> Iterable[Group]:
    rows = Conversation.objects.listed_for(request.user).filter(archived=False).order_by("-updated", "-id")
    yield Group(_("Recent conversations"), [_conversation(each) for each in rows.only("id", "title")[:MOST]])


def _titles(user: User, query: str) -> Iterable[Group]:
    titles, total = search.titles(user=user, query=query, most=MOST)
    address = f"{reverse('chat:search')}?{urlencode({'q': query, 'titles': search.SOME_TITLES})}"
    yield Group(_("Conversations"), [_conversation(each) for each, _pieces in titles], total, address)


def _messages(user: User, query: str) -> Iterable[Group]:
    found = search.search(user=user, query=query, limit=MOST, most_titles=0)
    total = len(found.hits) if found.after is None else search.spoken(user=user, query=query)
    many = total > search.MANY
    rows = []
    for hit in found.hits:
        row = _conversation(hit.message.conversation, hit.pieces)
        rows.append(Row(row.name, row.icon, f"{row.address}?at={hit.message.pk}", pieces=row.pieces))
    address = f"{reverse('chat:search')}?{urlencode({'q': query})}#messages-found"
    yield Group(_("Messages"), rows, min(total, search.MANY), address, many)


def _named(user: User, query: str) -> Iterable[Group]:
    places: dict[str, tuple[str, str, str]] = {
        "projects": (_("Projects"), "folder", "projects:project"),
        "personas": (_("Personas"), "persona", "personas:persona"),
        "files": (_("Files"), "file", "files:file"),
    }
    for kind, found in search.named(user=user, query=query, limit=MOST).items():
        label, icon, place = places[kind]
        rows = [Row(each.name, icon, reverse(place, args=[each.pk])) for each in found.rows]
        yield Group(label, rows, found.total, f"{reverse('chat:search')}?{urlencode({'q': query})}#{kind}")
