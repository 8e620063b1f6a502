"""Reminders are deleted with their author, except those that others use."""

from uuid import uuid4

import pytest
from django.contrib.auth.models import AbstractUser

from accounts.models import User
from accounts.services import delete_user
from personas.models import Persona, Reminder


@pytest.mark.django_db
def test_reminders_of_a_deleted_persons_personas_alone_go_along(admin_user: AbstractUser) -> None:
    person, other = (User.objects.create_user(uuid4().hex) for _ in range(2))
    first, second = (Persona.objects.create(owner=person, name=name) for name in ("One", "Two"))
    theirs = Persona.objects.create(owner=other, name="Theirs")
    own, shared, unused = (
        Reminder.objects.create(text=text, scope=Reminder.Scope.PERSONA) for text in ("own", "shared", "unused")
    )
    everywhere = Reminder.objects.create(text="everywhere")
    first.reminders.add(own, shared, everywhere)
    second.reminders.add(own)
    theirs.reminders.add(shared)
    delete_user(user=admin_user, person=person)
    rows = Reminder.objects.filter(pk__in=[each.pk for each in (own, shared, unused, everywhere)])
    assert {each.text for each in rows} == {"shared", "unused", "everywhere"}
    assert list(theirs.reminders.all()) == [shared]
