"""The settings page “Groups”: a person's rights by their groups, and, for managers, the members of a group."""

from collections.abc import Mapping
from uuid import UUID

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from accounts.access.rights import cached_models_of, rights_of
from accounts.access.sessions import SignedInRequest as Request
from accounts.groups import services
from accounts.models import PeopleGroup, Right, User
from core.errors import ProductError
from core.requests import get_or_404, with_row
from core.sentences import Sentence

PAGE = 50  # members on one page


@require_GET
def groups(request: Request) -> HttpResponse:
    rights = rights_of(request.user)
    context = {
        "may": [(right.label, right in rights.may) for right in Right],
        "models": cached_models_of(request.user),
        "servers": None if rights.tool_servers is None else sorted(rights.tool_servers),
        "days": rights.conversation_days,
        "mine": PeopleGroup.objects.of(request.user),
        "managed": request.user.managed_groups.filter(everyone=False),
    }
    return _page(request, "groups", context)


def get_managed_group(user: User, pk: UUID) -> PeopleGroup:
    """Return a group that the person manages. Raises `NotFound` if they cannot see it, else `not_manager` (403)."""
    group = get_or_404(PeopleGroup.objects.all(), pk, "group")
    services.require_manager(user, group)
    return group


@with_row(get_managed_group, "GET")
def members(request: Request, group: PeopleGroup) -> HttpResponse:
    return _members(request, group)


@with_row(get_managed_group)
def add(request: Request, group: PeopleGroup) -> HttpResponse:
    """Add the person with this user name."""
    name = request.POST.get("username", "").strip()
    person = User.objects.filter(username=name.replace("\0", "")).first()
    if person is None:
        sentence = Sentence(
            "There is nobody with the user name “{name}”. Check the spelling, and try again.", name=name[:150]
        )
        return _members(request, group, ProductError("no_such_person", sentence, status=422), name)
    services.add_members(user=request.user, group=group, people=[person])
    return redirect("settings:group", group.pk)


@require_POST
def remove(request: Request, pk: UUID, member: UUID) -> HttpResponse:
    group = get_managed_group(request.user, pk)
    services.remove_members(user=request.user, group=group, people=[get_or_404(group.members.all(), member, "member")])
    return redirect("settings:group", group.pk)


def _members(request: Request, group: PeopleGroup, problem: ProductError | None = None, name: str = "") -> HttpResponse:
    query = " ".join(request.GET.get("q", "").replace("\0", "").split())
    words = Q(username__icontains=query) | Q(first_name__icontains=query) | Q(last_name__icontains=query)
    rows = group.members.filter(words).order_by("username") if query else group.members.order_by("username")
    page = Paginator(rows, PAGE).get_page(request.GET.get("page"))
    context = {"group": group, "members": page, "query": query, "problem": problem, "name": name}
    return _page(request, "group", context, status=problem.status if problem else 200)


def _page(request: Request, name: str, context: Mapping[str, object], status: int = 200) -> HttpResponse:
    frame = {"section": "settings", "place": "groups"}
    return render(request, f"accounts/{name}.html", {**context, **frame}, status=status)
