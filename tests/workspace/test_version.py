"""Each process caches the values that administrators set, and reads them again after any change."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from llm.learning import learn_served_window, record_calls
from llm.models import Model, Provider
from llm.services import LearntValues, learn_ratio, model_at, set_default_model, upsert_model
from llm.truncation import CallReported, SentTokens
from llm.types.model_call import AllocatedWindow, Usage
from personas.models import BudgetProfile, SystemPrompt
from personas.services import activate_prompt, rules_at, save_prompt, save_text, set_default_profile
from workspace.models import WorkspaceVersion
from workspace.models.version import VersionedCache

pytestmark = pytest.mark.django_db


def version() -> object:
    return WorkspaceVersion.objects.values_list("version", flat=True).first()


@pytest.fixture
def model() -> Model:
    provider = Provider.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9/v1", api_key="the first key")
    return Model.objects.create(provider=provider, name=uuid4().hex)


@pytest.fixture
def prompt() -> SystemPrompt:
    return save_prompt(user=None, kind=SystemPrompt, text="Be kind.")


@pytest.fixture
def profile() -> BudgetProfile:
    return BudgetProfile.objects.create(name=uuid4().hex)


def by_hand(statement: str, *bound: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, bound)


CHANGES: dict[str, Callable[[Model, SystemPrompt, BudgetProfile], object]] = {
    "a row saved": lambda model, _, __: Provider.objects.get(pk=model.provider_id).save(),
    "many rows at once": lambda model, _, __: Model.objects.filter(pk=model.pk).update(enabled=False),
    "SQL by hand": lambda model, _, __: by_hand("UPDATE llm_model SET max_output = 9 WHERE id = %s", model.pk),
    "a row made": lambda model, _, __: upsert_model(provider=model.provider, name="another"),
    "a row deleted": lambda _, __, profile: profile.delete(),
    "a default": lambda model, _, profile: (set_default_model(model=model), set_default_profile(profile=profile)),
    "another version": lambda _, prompt, __: activate_prompt(prompt=prompt),
    "a text": lambda _, __, ___: save_text(user=None, name="citations", text="Cite."),
    "a window that was learnt": lambda model, _, __: learn_served_window(
        model, AllocatedWindow("ollama", 3_000), 9_000
    ),
    "a profile": lambda _, __, profile: BudgetProfile.objects.filter(pk=profile.pk).update(buffer=9),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_change_by_an_administrator_makes_another_version(
    change: Callable[[Model, SystemPrompt, BudgetProfile], object],
    model: Model,
    prompt: SystemPrompt,
    profile: BudgetProfile,
) -> None:
    before = version()
    change(model, prompt, profile)
    assert version() != before


def test_what_every_answer_teaches_makes_none(model: Model) -> None:
    before = version()
    learn_ratio(model=model, counted=1_000, reported=1_200)
    record_calls(model, [CallReported(SentTokens(1_000), Usage(1_200, 1))])
    assert version() == before
    row = Model.objects.get(pk=model.pk)
    learnt: LearntValues = {
        "token_ratio": row.token_ratio,
        "ratio_samples": row.ratio_samples,
        "reported_counts": row.reported_counts,
    }
    current = model_at(None, model.pk, learnt)
    assert current is not None and current.ratio_samples == 1 and current.reported_counts["largest_whole"] == 1_000


def test_a_changed_key_and_a_changed_prompt_are_used_at_once(model: Model, prompt: SystemPrompt) -> None:
    def used() -> tuple[str, str]:
        model_row, rules = model_at(None, model.pk, {}), rules_at()
        return model_row.provider.api_key if model_row else "", rules.system_prompt.text if rules.system_prompt else ""

    assert used() == ("the first key", "Be kind.")
    Provider.objects.filter(pk=model.provider_id).update(api_key="another")
    save_prompt(user=None, kind=SystemPrompt, text="Be brief.")
    assert used() == ("another", "Be brief.")


def test_what_was_rolled_back_is_never_found_again(model: Model) -> None:
    """Later readers do not get it, nor does anybody after the next version."""
    with transaction.atomic():
        Model.objects.filter(pk=model.pk).update(enabled=False)
        inside = model_at(None, model.pk, {})
        transaction.set_rollback(True)
    after = model_at(None, model.pk, {})
    Provider.objects.filter(pk=model.provider_id).update(silence_timeout=9)
    later = model_at(None, model.pk, {})
    assert inside and after and later
    assert (inside.enabled, after.enabled, later.enabled) == (False, True, True)


def test_nobody_changes_what_others_get(model: Model) -> None:
    first, profile = model_at(None, model.pk, {}), rules_at().profile_for(None)
    assert first is not None
    first.learnt_window, profile.buffer = 300, 77
    second = model_at(None, model.pk, {})
    assert second is not None and second.learnt_window is None
    assert rules_at().profile_for(None).buffer != 77


def test_it_is_read_once_a_version_and_always_without_one() -> None:
    reads: list[int] = []
    cache = VersionedCache(lambda: reads.append(1))
    one = uuid4()
    cache.get(one), cache.get(one), cache.get(uuid4())
    assert len(reads) == 2
    WorkspaceVersion.objects.all().delete()
    cache.get(), cache.get()
    assert len(reads) == 4
    Provider.objects.create(name=uuid4().hex)  # makes the row anew
    cache.get(), cache.get()
    assert len(reads) == 5
