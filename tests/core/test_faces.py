"""Faces: their default, what one may choose, and how they are shown."""

import re
from uuid import UUID

import pytest
from django.template import Context, Template

from accounts.models import User
from core.errors import ProductError
from core.faces import COLOURS, FaceColour, FaceIcon
from personas.models import Persona
from projects.services import ProjectFields, create_project, update_project
from tests.product import ROOT

ICONS = (ROOT / "static" / "icons.svg").read_text()
STYLES = (ROOT / "static" / "css" / "faces.css").read_text()


def shown(row: object) -> str:
    return Template("{% load faces %}{% face row %}").render(Context({"row": row}))


def test_without_a_choice_it_is_the_first_letter_on_a_colour_of_the_id() -> None:
    persona = Persona(pk=UUID(int=3), name="“élan”")
    assert f'<span class="face face-{COLOURS[3]}" aria-hidden="true">É</span>' == shown(persona)
    persona.name = "Quite another"
    assert persona.face_colour == COLOURS[3]
    assert "?" in shown(Persona(pk=UUID(int=8), name="!!"))


def test_a_choice_is_shown() -> None:
    row = Persona(pk=UUID(int=3), name="Legal", icon=FaceIcon.SCALES, colour=FaceColour.PINK)
    assert re.search(r'<span class="face face-pink"[^>]*><svg [^>]*>\s*<use href="[^"]+#scales"></use>', shown(row))


def test_every_icon_and_colour_is_drawn() -> None:
    assert [icon for icon in FaceIcon.values if icon and f'id="{icon}"' not in ICONS] == []
    assert [colour for colour in COLOURS if f".face-{colour} {{" not in STYLES] == []


@pytest.mark.django_db
def test_a_project_gets_a_face_and_refuses_an_unknown_one() -> None:
    user = User.objects.create_user("face")
    project = create_project(user=user, fields={"name": "P"})
    update_project(user=user, project=project, fields={"icon": "book", "colour": "teal"})
    assert (project.icon, project.colour) == ("book", "teal")
    unknown: tuple[ProjectFields, ...] = ({"icon": "skull"}, {"colour": "black"})
    for fields in unknown:
        with pytest.raises(ProductError, match="no such icon or colour"):
            update_project(user=user, project=project, fields=fields)
