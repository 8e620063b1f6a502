"""`manage.py rotate_secrets`: afterwards the new key alone reads every stored secret."""

from io import StringIO

import pytest
from allauth.mfa.models import Authenticator
from django.apps import apps
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from accounts.models import User, Webhook
from config.secret_rotation import rotate_secrets
from core.crypto import EncryptedTextField, decrypt, encrypt
from llm.models import Provider

OLD, NEW = "the old key " * 5, "the new key " * 5
SECRET = "secret-of-a-service"

pytestmark = pytest.mark.django_db


def secrets() -> dict[str, set[str]]:
    """Return the secrets that the present keys read, by column."""
    return {
        f"{model._meta.label}.{field.name}": set(model._base_manager.values_list(field.name, flat=True))
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if isinstance(field, EncryptedTextField)
    }


@pytest.fixture
def stored_under_the_old_key(settings: Settings) -> Authenticator:
    settings.ENCRYPTION_KEYS = [OLD]
    for number in range(3):
        Provider.objects.create(name=f"rotated {number}", base_url="http://127.0.0.1:9/v1", api_key=SECRET)
    data = {"seed": encrypt(SECRET), "migrated_codes": [encrypt("one"), encrypt("two")], "used_mask": 5}
    user = User.objects.create_user("rotated")
    Webhook.objects.create(owner=user, url="https://example.org/", origin="https://example.org", secret=SECRET)
    return Authenticator.objects.create(user=user, type="recovery_codes", data=data)


def test_the_new_key_alone_reads_everything_afterwards(
    stored_under_the_old_key: Authenticator, settings: Settings
) -> None:
    before = secrets()
    assert {SECRET} <= before["llm.Provider.api_key"] & before["accounts.Webhook.secret"]
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    list(rotate_secrets())
    settings.ENCRYPTION_KEYS = [NEW]
    assert secrets() == before
    stored_under_the_old_key.refresh_from_db()
    data = stored_under_the_old_key.data
    assert decrypt(data["seed"]) == SECRET
    assert [decrypt(code) for code in data["migrated_codes"]] == ["one", "two"]
    assert data["used_mask"] == 5


def test_a_secret_that_no_key_reads_stays_and_the_command_says_so(
    stored_under_the_old_key: Authenticator, settings: Settings
) -> None:
    settings.ENCRYPTION_KEYS = [NEW]
    output = StringIO()
    with pytest.raises(CommandError, match="Keep the old keys"):
        call_command("rotate_secrets", stdout=output)
    assert "that no key can decrypt" in output.getvalue()
    settings.ENCRYPTION_KEYS = [OLD]
    assert SECRET in secrets()["llm.Provider.api_key"]
    stored_under_the_old_key.refresh_from_db()
    assert decrypt(stored_under_the_old_key.data["seed"]) == SECRET
