"""Rows that only time brings: people of the office, days of use, older conversations.

* `python -m scripts.screenshots.past people ADMIN URL` names the administrator, and adds people and models, whose
  server is at the URL. It prints the ids of models and groups as JSON, for `office`.
* `python -m scripts.screenshots.past days` spreads over the last weeks what is there after that.
"""

import json
import random
import sys
from datetime import timedelta
from decimal import Decimal

import django

django.setup()

from django.utils import timezone

from accounts.models import PeopleGroup, User
from chat.ledger.models import ModelCall, UsageDay
from chat.ledger.sums import sum_days
from chat.models import Conversation, Turn
from llm.models import Model, Provider
from personas.models import BudgetProfile, Persona

PEOPLE = {
    "david.okafor": ("David", "Okafor"),
    "mira.halonen": ("Mira", "Halonen"),
    "tom.lindqvist": ("Tom", "Lindqvist"),
    "esra.yildiz": ("Esra", "Yıldız"),
    "jan.petersen": ("Jan", "Petersen"),
    "office": ("Front", "Office"),
}
TEAM_NAME = "Tenancy team"
TEAM = ("david.okafor", "mira.halonen", "esra.yildiz")
# Provider, window, US dollars a million tokens of prompts and answers, and its share of the calls.
MODELS = {
    "qwen3-14b": ("Own server", 12_288, "0.05", "0.15", 11),
    "mistral-medium": ("Mistral", 128_000, "0.4", "2", 4),
    "claude-sonnet-4-5": ("Anthropic", 200_000, "3", "15", 3),
}
OTHER_TAGS = ("lorenzen", "baltic", "office")
DAYS = 30
SEED = 7  # the same workspace each time
# Project files may fill more of the small window than usual, and a summary comes only when it is asked for.
PROJECT_SHARE = 0.75
PROFILE = {"name": "Long contracts", "ceiling": 9_000, "floor": 700, "keep_recent": 6, "project_share": PROJECT_SHARE}


def add_people(admin: str, url: str) -> dict[str, object]:
    User.objects.filter(username="admin").update(username=admin, first_name="Clara", last_name="Brandt")
    for username, (first, last) in PEOPLE.items():
        User.objects.create_user(username, f"{username}@brandt-lindqvist.example", first_name=first, last_name=last)
    team = PeopleGroup.objects.create(name=TEAM_NAME)
    team.members.set(User.objects.filter(username__in=[*TEAM, admin]))
    for name, (provider, window, into, out, _) in MODELS.items():
        row, _made = Provider.objects.get_or_create(name=provider, defaults={"base_url": url, "api_key": "scripted"})
        facts = {"context_window": window, "input_price": into, "output_price": out, "tools": True}
        Model.objects.update_or_create(provider=row, name=name, defaults=facts)
    BudgetProfile.objects.filter(default=True).update(project_share=PROJECT_SHARE)
    return {
        "models": {model.name: str(model.pk) for model in Model.objects.all()},
        "groups": {team.name: str(team.pk)},
        "profile": str(BudgetProfile.objects.create(**PROFILE).pk),
    }


def spread_over_days() -> None:
    """Date conversations back, and add the calls of working days to the ledger."""
    now = timezone.now()
    chance = random.Random(SEED)
    for number, conversation in enumerate(Conversation.objects.filter(tags__name__in=OTHER_TAGS).order_by("-created")):
        Conversation.objects.filter(pk=conversation.pk).update(updated=now - timedelta(hours=20 * (number + 1)))
    for turn in Turn.objects.filter(status="done"):
        Turn.objects.filter(pk=turn.pk).update(first_token_ms=chance.randint(280, 1_900))
    people, models = list(User.objects.filter(is_active=True)), {model.name: model for model in Model.objects.all()}
    team = PeopleGroup.objects.get(name=TEAM_NAME)
    personas = [*Persona.objects.all(), None]
    calls, moments = [], []
    for day in range(1, DAYS):
        moment = now - timedelta(days=day)
        busy = 24 if moment.weekday() < 5 else 3
        for _ in range(chance.randint(busy // 2, busy * 2)):
            name = chance.choices(list(MODELS), [share for *_, share in MODELS.values()])[0]
            into, out = chance.randint(1_200, 14_000), chance.randint(90, 900)
            prices = [Decimal(price) for price in MODELS[name][2:4]]
            calls.append(
                ModelCall(
                    person=chance.choice(people),
                    group=team,
                    persona=chance.choice(personas),
                    model=models[name],
                    model_name=name,
                    provider_name=models[name].provider.name,
                    purpose=ModelCall.Purpose.ANSWER,
                    input=into,
                    output=out,
                    cached_input=into // 2 if chance.random() < 0.5 else 0,
                    cost=(into * prices[0] + out * prices[1]) / 1_000_000,
                )
            )
            moments.append(moment - timedelta(minutes=chance.randint(0, 500)))
    for row, moment in zip(ModelCall.objects.bulk_create(calls), moments, strict=True):
        ModelCall.objects.filter(pk=row.pk).update(created=moment)  # the insertion sets it to now
    UsageDay.objects.all().delete()
    sum_days()


if __name__ == "__main__":
    if sys.argv[1] == "people":
        print(json.dumps(add_people(*sys.argv[2:])))
    else:
        spread_over_days()
