"""Copies of personas."""

from accounts.models import User
from llm.models import Model
from personas.models import BudgetProfile, Persona
from personas.services import duplicate_persona

OTHER = {"id", "owner", "name", "visibility", "version", "tokens", "created", "updated"}


def test_a_copy_has_every_field_of_its_original_but_those_that_make_it_another(model: Model) -> None:
    original = Persona.objects.create(
        owner=User.objects.create_user("pia"),
        name="Legal",
        icon="scales",
        colour="blue",
        memory=False,
        description="For contracts",
        instructions="Cite.",
        replaces_system_prompt=True,
        model=model,
        budget_profile=BudgetProfile.objects.create(name="Long"),
        tools=["web_search"],
        effort="low",
        date_awareness="off",
        starter_messages=["Which clause?"],
        visibility="workspace",
        version=7,
        tokens={"o200k_base": 2_000},  # counted anew
    )
    plain = Persona(name="plain")
    fields = [field.name for field in Persona._meta.concrete_fields]
    assert not [name for name in fields if getattr(original, name) == getattr(plain, name)], "a value to copy"
    copy = duplicate_persona(user=User.objects.create_user("otto"), persona=original)
    copy.refresh_from_db()
    assert {name for name in fields if getattr(copy, name) != getattr(original, name)} == OTHER
