"""Personas shared with people and with groups: the rights of each role, and their end."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from accounts.groups.services import delete_group, remove_members, save_group
from accounts.models import PeopleGroup, Right, Role, User
from core.errors import ProductError
from personas import services
from personas.models import Persona, PersonaShare
from personas.sharing.roles import strongest_role
from personas.sharing.services import MAX_SHARES, addable_groups, change_share, hand_over, remove_share, share

pytestmark = pytest.mark.django_db


@pytest.fixture
def olga() -> User:
    return User.objects.create_user("olga")


@pytest.fixture
def binh() -> User:
    return User.objects.create_user("binh")


@pytest.fixture
def persona(olga: User) -> Persona:
    return Persona.objects.create(owner=olga, name="Legal", instructions="Cite.")


def group_of(*people: User) -> PeopleGroup:
    return save_group(user=None, group=None, fields={"name": uuid4().hex, "members": people})


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def code(act: Callable[..., object], **arguments: object) -> str:
    try:
        act(**arguments)
    except ProductError as error:
        return error.code
    return ""


def allowed(user: User, persona: Persona) -> dict[str, str]:
    """Return the error code of each act; empty for an act that is allowed."""
    role = strongest_role(user, persona)
    assert Persona.objects.visible_to(user).filter(pk=persona.pk).exists() == (role is not None)
    assert Persona.objects.editable_by(user).filter(pk=persona.pk).exists() == (role in (Role.EDITOR, Role.OWNER))
    fields = {"instructions": uuid4().hex}
    page = browser(user).get(reverse("personas:shares", args=[persona.pk]))
    return {
        "edit": code(services.update_persona, user=user, persona=persona, fields=fields),
        "publish": code(services.update_persona, user=user, persona=persona, fields={"visibility": "workspace"}),
        "share": code(share, user=user, persona=persona, username=uuid4().hex),
        "see shares": "" if page.status_code == 200 else "no",
    }


@pytest.mark.parametrize(
    ("own", "of_groups", "expected"),
    [
        (None, [], None),
        (Role.READER, [], Role.READER),
        (None, [Role.READER], Role.READER),
        (Role.READER, [Role.EDITOR], Role.EDITOR),
        (Role.EDITOR, [Role.READER, Role.OWNER], Role.OWNER),
    ],
)
def test_of_several_roles_the_strongest_counts(
    own: Role | None, of_groups: list[Role], expected: Role | None, olga: User, binh: User, persona: Persona
) -> None:
    if own:
        share(user=olga, persona=persona, username="binh", role=own)
    for role in of_groups:
        group = group_of(binh, olga)
        share(user=olga, persona=persona, group=group.pk, role=role)
    assert strongest_role(binh, persona) == expected
    edits = "" if expected in (Role.EDITOR, Role.OWNER) else "not_owner" if expected else "not_found"
    owns = "" if expected == Role.OWNER else edits or "not_owner"
    assert allowed(binh, persona) == {
        "edit": edits,
        "publish": owns,
        "share": owns,
        "see shares": "" if expected == Role.OWNER else "no",
    }


def test_what_a_group_gives_is_gone_with_who_leaves_it_and_with_the_group(
    olga: User, binh: User, persona: Persona
) -> None:
    group = group_of(binh, olga)
    share(user=olga, persona=persona, group=group.pk, role=Role.EDITOR)
    assert Persona.objects.editable_by(binh).exists()
    remove_members(user=User.objects.create_superuser("root"), group=group, people=[binh])
    assert not Persona.objects.visible_to(binh).exists()
    group.members.add(binh)
    assert Persona.objects.visible_to(binh).exists()
    delete_group(user=User.objects.get(username="root"), group=group)
    assert not Persona.objects.visible_to(binh).exists()


def test_sharing_asks_for_the_right_to_make_personas_for_others_and_taking_back_does_not(
    olga: User, binh: User, persona: Persona
) -> None:
    row = share(user=olga, persona=persona, username="binh", role=Role.EDITOR)
    may = [right for right in Right if right != Right.PUBLISH_PERSONAS]
    save_group(user=None, group=PeopleGroup.objects.get(everyone=True), fields={"may": may})
    assert code(share, user=olga, persona=persona, username="anna") == "right_missing"
    assert code(change_share, user=olga, persona=persona, share=row.pk, role="owner") == "right_missing"
    assert code(change_share, user=olga, persona=persona, share=row.pk, role="reader") == ""
    assert "you can only remove shares" in browser(olga).get(reverse("personas:persona", args=[persona.pk])).text
    assert code(remove_share, user=olga, persona=persona, share=row.pk) == ""


def test_a_name_that_nobody_has_is_shared_with_like_any_other(olga: User, persona: Persona) -> None:
    client = browser(olga)
    for name in ("binh", "nobody"):
        address = reverse("personas:shares", args=[persona.pk])
        assert client.post(address, {"username": name, "role": "reader"}).status_code == 302
    assert [row.name for row in PersonaShare.objects.filter(persona=persona)] == ["binh", "nobody"]
    assert code(share, user=olga, persona=persona, username="olga") == "owner_has_it"
    assert code(share, user=olga, persona=persona, username=" ") == "bad_username"
    assert code(share, user=olga, persona=persona, username="anna", role="king") == "unknown_role"


def test_a_persona_has_a_greatest_number_of_shares_and_those_that_are_there_can_change(
    olga: User, persona: Persona
) -> None:
    names = (f"person-{number}" for number in range(MAX_SHARES - 1))
    PersonaShare.objects.bulk_create(PersonaShare(persona=persona, username=name) for name in names)
    assert code(share, user=olga, persona=persona, username="binh") == ""
    assert code(share, user=olga, persona=persona, username="anna") == "too_many_shares"
    assert code(share, user=olga, persona=persona, username="binh", role=Role.EDITOR) == ""
    assert persona.shares.count() == MAX_SHARES


def test_groups_to_share_with_are_ones_own_and_for_administrators_all(olga: User, binh: User, persona: Persona) -> None:
    mine, other = group_of(olga), group_of(binh)
    assert list(addable_groups(olga, persona)) == [mine]
    assert code(share, user=olga, persona=persona, group=other.pk) == "not_found"
    everyone = PeopleGroup.objects.get(everyone=True)
    assert code(share, user=olga, persona=persona, group=everyone.pk) == "not_found"  # that is its visibility
    assert {*addable_groups(User.objects.create_superuser("root"), persona)} == {mine, other}


def test_owners_hand_over_and_keep_it_as_owners(olga: User, binh: User, persona: Persona) -> None:
    Persona.objects.create(owner=binh, name="Legal")
    row = share(user=olga, persona=persona, username="binh", role=Role.EDITOR)
    assert code(hand_over, user=binh, persona=persona, share=row.pk) == "not_owner"
    handed = hand_over(user=olga, persona=persona, share=row.pk)
    assert (handed.owner, handed.name) == (binh, "Legal (2)")
    assert strongest_role(olga, handed) == Role.OWNER
    group = share(user=binh, persona=handed, group=group_of(binh).pk)
    assert code(hand_over, user=binh, persona=handed, share=group.pk) == "not_found"


def test_the_page_asks_before_a_persona_is_handed_over(olga: User, binh: User, persona: Persona) -> None:
    client, shares = browser(olga), reverse("personas:shares", args=[persona.pk])
    row = share(user=olga, persona=persona, username="binh", role=Role.EDITOR)
    address = reverse("personas:hand_over", args=[persona.pk, row.pk])
    assert "Hand over" not in client.get(shares).text  # one hands over to those who own it already
    change_share(user=olga, persona=persona, share=row.pk, role=Role.OWNER)
    button, question = client.get(shares).text.split(f'action="{address}"', 1)
    assert "Hand over…" in button[button.rindex("<details") :] and "<form" in button[button.rindex("</summary>") :]
    assert "The persona then belongs to binh" in question and "olga stays an owner" in question
    handed = client.post(address, headers={"HX-Request": "true"}).text
    assert handed.index("binh") < handed.index("owner") < handed.index("olga")
    persona.refresh_from_db()
    assert persona.owner == binh


def test_pages_say_by_whom_it_is_shared_and_offer_what_the_role_lets_one_do(
    olga: User, binh: User, persona: Persona
) -> None:
    client, address = browser(binh), reverse("personas:persona", args=[persona.pk])
    row = share(user=olga, persona=persona, username="binh")
    assert "shared with you by olga" in client.get(reverse("personas:list")).text
    read = client.get(address).text
    assert "Remove from my list" in read
    assert 'name="instructions"' not in read
    change_share(user=olga, persona=persona, share=row.pk, role="editor")
    edit = client.get(address).text
    assert 'name="instructions"' in edit
    assert 'name="visibility"' not in edit
    assert "Share…" not in edit
    change_share(user=olga, persona=persona, share=row.pk, role="owner")
    assert "Share…" in client.get(address).text
    assert client.post(reverse("personas:remove_share", args=[persona.pk, row.pk])).status_code == 302
    assert client.get(address).status_code == 404
    assert "Share…" in browser(olga).get(address).text


def test_administrators_say_who_has_a_persona(admin_client: Client, olga: User, binh: User, persona: Persona) -> None:
    group, row = group_of(binh), share(user=olga, persona=persona, username="binh")
    change = reverse("admin:personas_persona_change", args=[persona.pk])
    form = {"name": "Legal", "visibility": "private", "date_awareness": "day", "owner": str(olga.pk)}
    form |= {"shares-TOTAL_FORMS": "2", "shares-INITIAL_FORMS": "1", "shares-0-id": str(row.pk)}
    form |= {"shares-0-persona": str(persona.pk), "shares-1-persona": str(persona.pk)}
    both = form | {"shares-0-user": str(binh.pk), "shares-0-group": str(group.pk), "shares-0-role": "editor"}
    assert "Choose a person or a group." in admin_client.post(change, both).text
    form |= {"shares-0-user": str(binh.pk), "shares-0-role": "editor"}
    form |= {"shares-1-group": str(group.pk), "shares-1-role": "reader"}
    assert admin_client.post(change, form).status_code == 302
    assert {(each.name, each.role) for each in persona.shares.all()} == {("binh", "editor"), (group.name, "reader")}
