"""Create the rows that a new workspace starts with. Safe at every start, since existing rows do not change."""

import json
import os
import secrets
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import transaction

from accounts.models import User
from chat.summaries.writing import DEFAULT_PROMPT
from config.embedded.services import MODEL_NAME
from core.audit.services import record
from llm.models import Model, Provider
from llm.services import set_default_model
from personas.models import BudgetProfile, Persona, SummaryPrompt, SystemPrompt
from personas.services import save_prompt, set_default_profile, token_counts
from projects.sample import create_sample_project

SYSTEM_PROMPT = """\
You are a careful assistant in a team's workspace. Give the answer first, then its reasons. Say what you do not know. \
Never invent facts, sources or quotations. Write in the person's language.

Use Markdown where it helps: short paragraphs, lists, tables, fenced code with its language. Write formulas as $…$ or \
$$…$$ and diagrams as ```mermaid blocks.
"""
EDITOR = """\
You edit texts. Return the improved text first, then a short list of what you changed and why. Keep the author's voice \
and language. Ask when the meaning is unclear.\
"""
BUNDLED = "Bundled model"


class Command(BaseCommand):
    help = "Creates what is missing: system prompt, profiles, persona, bundled model, first admin, demo project."

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic():
            if not SystemPrompt.objects.exists():
                save_prompt(user=None, kind=SystemPrompt, text=SYSTEM_PROMPT, note="What every workspace starts with")
            if not SummaryPrompt.objects.exists():
                save_prompt(user=None, kind=SummaryPrompt, text=DEFAULT_PROMPT, note="What every workspace starts with")
            self.profiles()
            self.bundled_model()
            if not Persona.objects.exists():
                Persona.objects.create(
                    name="Editor",
                    description="Makes a text clearer and says what it changed.",
                    instructions=EDITOR,
                    tokens=token_counts(EDITOR),
                    visibility=Persona.Visibility.WORKSPACE,
                    starter_messages=["Make this paragraph clearer: "],
                )
            created = self.admin()
        self.stdout.write(json.dumps({"admin": created} if created else {}))

    def profiles(self) -> None:
        if BudgetProfile.objects.exists():
            return
        set_default_profile(profile=BudgetProfile.objects.create(name="Standard"))
        BudgetProfile.objects.create(name="WENDY 12k", window=12_288, ceiling=7_800, floor=3_000, keep_recent=8)

    def bundled_model(self) -> None:
        """Store the address and key of the bundled model, which change at every start. `enabled` does not change."""
        url = settings.BUNDLED_MODEL_URL
        key = settings.BUNDLED_MODEL_KEY or "none"
        if not url:
            return
        provider, created = Provider.objects.get_or_create(
            name=BUNDLED, defaults={"kind": Provider.Kind.OPENAI, "base_url": url, "api_key": key}
        )
        if (provider.base_url, provider.api_key) != (url, key):
            Provider.objects.filter(pk=provider.pk).update(base_url=url, api_key=key)
        if created:
            # Prefill is slow on a shared core (about 200 tokens/s), so the model gets a third of its window of 6,144.
            model = Model.objects.create(
                provider=provider, name=MODEL_NAME, context_window=2_048, max_output=512, tools=False
            )
            if not Model.objects.filter(default=True).exists():
                set_default_model(model=model)

    def admin(self) -> dict[str, str] | None:
        if User.objects.exists():
            return None
        username = os.environ.get("ADMIN_USERNAME") or "admin"
        chosen = os.environ.get("ADMIN_PASSWORD", "")
        password = chosen or secrets.token_urlsafe(12)
        with transaction.atomic():
            admin = User.objects.create_superuser(username, password=password, password_once=not chosen)
            changes = {"is_staff": [None, True], "is_superuser": [None, True]}
            record(user=None, action="person.added", row=admin, name=username, changes=changes)
        create_sample_project(user=admin)
        return {"username": username, "password": "" if chosen else password}
