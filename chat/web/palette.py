"""Find conversations, messages, files, projects, personas and commands while a user types in the palette (Ctrl+K)."""

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
from core.faces import WithFace

ROWS_PER_GROUP = 5  # rows per group
MAX_LENGTH = 200  # characters of a query
Pieces = Sequence[tuple[str, bool]]  # each piece of a text, and whether it matches the query


@dataclass(frozen=True, slots=True)
class PaletteRow:
    """A row of the palette. It opens an `address`, or runs the command `does` of the page.

    `pieces` is the matching text. `face`: the row whose face is shown instead of the icon.
    """

    name: str
    icon: str
    address: str = ""
    keys: str = ""
    does: str = ""
    pieces: Pieces = ()
    face: WithFace | None = None


@dataclass(frozen=True, slots=True)
class PaletteGroup:
    """The first `rows` of `total` results. The address `all` lists all. `many`: there are more than `total`."""

    label: str
    rows: list[PaletteRow]
    total: int = 0
    all: str = ""
    many: bool = field(default=False)


@require_GET
def palette(request: Request) -> HttpResponse:
    """Show the results for the query `q`. Without a query show the newest conversations and all commands.

    With `keys` show the list of shortcuts.
    """
    if "keys" in request.GET:
        return render(request, "ui/_shortcuts.html")
    query = request.GET.get("q", "")[:MAX_LENGTH].replace("\0", " ").strip()
    words = query.lower().split()
    matching_commands = [row for row in commands() if all(word in row.name.lower() for word in words)]
    group = PaletteGroup(_("Commands"), matching_commands)
    if query:
        user = request.user
        groups = [*_titles(user, query), group, *_named(user, query), *_messages(user, query)]
    else:
        groups = [*_recent(request), group]
    return render(request, "chat/_palette.html", {"query": query, "groups": [row for row in groups if row.rows]})


def commands() -> list[PaletteRow]:
    """Return all commands."""
    return [
        PaletteRow(_("New conversation"), "write", reverse("chat:home"), keys="Ctrl Shift O"),
        PaletteRow(_("Projects"), "folder", reverse("projects:list")),
        PaletteRow(_("Personas"), "persona", reverse("personas:list")),
        PaletteRow(_("Prompts"), "write", reverse("prompts:list")),
        PaletteRow(_("Tasks"), "task", reverse("tasks:today")),
        PaletteRow(_("Files"), "file", reverse("files:list")),
        PaletteRow(_("Shared with me"), "share", reverse("chat:received")),
        PaletteRow(_("Full readings"), "file", reverse("chat:readings")),
        PaletteRow(_("Settings"), "settings", reverse("settings:preferences")),
        PaletteRow(_("My usage"), "chart", reverse("chat:usage")),
        PaletteRow(_("Import and export"), "download", reverse("chat:imports")),
        PaletteRow(_("What was said on a day"), "calendar", reverse("chat:today")),
        PaletteRow(_("Notifications while this page is in the background: on or off"), "chat", does="notify"),
        PaletteRow(_("Choose several conversations"), "tick", does="choose"),
        PaletteRow(_("Narrow or wide list"), "side", keys="Ctrl B", does="rail"),
        PaletteRow(_("Keyboard shortcuts"), "key", keys="?", does="keys"),
    ]


def _conversation(row: Conversation, pieces: Pieces = ()) -> PaletteRow:
    address = reverse("chat:conversation", args=[row.pk])
    return PaletteRow(row.title or _("New conversation"), "chat", address, pieces=pieces)


def _recent(request: Request) -> Iterable[PaletteGroup]:
    rows = Conversation.objects.listed_for(request.user).filter(archived=False).order_by("-updated", "-id")
    yield PaletteGroup(
        _("Recent conversations"), [_conversation(each) for each in rows.only("id", "title")[:ROWS_PER_GROUP]]
    )


def _titles(user: User, query: str) -> Iterable[PaletteGroup]:
    titles, total = search.match_titles(user=user, query=query, most=ROWS_PER_GROUP)
    address = f"{reverse('chat:search')}?{urlencode({'q': query, 'titles': search.MORE_TITLES})}"
    yield PaletteGroup(_("Conversations"), [_conversation(each) for each, _pieces in titles], total, address)


def _messages(user: User, query: str) -> Iterable[PaletteGroup]:
    results = search.search(user=user, query=query, limit=ROWS_PER_GROUP, most_titles=0)
    total = len(results.hits) if results.after is None else search.count_messages(user=user, query=query)
    many = total > search.MAX_COUNTED
    rows = []
    for hit in results.hits:
        row = _conversation(hit.message.conversation, hit.pieces)
        rows.append(PaletteRow(row.name, row.icon, f"{row.address}?at={hit.message.pk}", pieces=row.pieces))
    address = f"{reverse('chat:search')}?{urlencode({'q': query})}#messages-found"
    yield PaletteGroup(_("Messages"), rows, min(total, search.MAX_COUNTED), address, many)


def _named(user: User, query: str) -> Iterable[PaletteGroup]:
    """Yield the projects, personas and files whose names match."""
    kinds: dict[str, tuple[str, str, str]] = {
        "projects": (_("Projects"), "folder", "chat:project"),
        "personas": (_("Personas"), "persona", "personas:persona"),
        "files": (_("Files"), "file", "files:file"),
    }
    for kind, matches in search.match_names(user=user, query=query, limit=ROWS_PER_GROUP).items():
        label, icon, view = kinds[kind]
        rows = [
            PaletteRow(row.name, icon, reverse(view, args=[row.pk]), face=row if isinstance(row, WithFace) else None)
            for row in matches.rows
        ]
        yield PaletteGroup(label, rows, matches.total, f"{reverse('chat:search')}?{urlencode({'q': query})}#{kind}")
