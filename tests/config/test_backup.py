"""A backup holds everything, and is restored into an empty database of the same version with the same keys, or not."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django.fixtures import Settings

from config.backup.services import MANIFEST, STATE
from files.index.indexing import create_vector_index
from files.models import Embedder
from scripts.services import migrated_database
from tests.chat.conversations import past
from tests.conftest import Person
from tests.product import ROOT, database_url

pytestmark = pytest.mark.process

STRUCTURE = r"""
WITH plain AS (
    SELECT indexdef AS said FROM pg_indexes WHERE schemaname = 'public' UNION ALL
    SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) || convalidated
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace UNION ALL
    SELECT tgrelid::regclass || ' ' || tgname || tgenabled::text FROM pg_trigger WHERE NOT tgisinternal
) SELECT regexp_replace(said, '::[a-z ]+(\[\])?|[()]', '', 'g') FROM plain ORDER BY 1
"""  # without casts: PostgreSQL writes a condition that it has read from itself in another way


def backed_up(path: Path) -> dict[str, Any]:
    call_command("backup", str(path), stdout=StringIO())
    return dict(json.loads((path / MANIFEST).read_text()))


def rows_of(path: Path) -> dict[str, list[bytes]]:
    """By table, sorted: the order is that of places in the table, and a short row that is loaded after a long one may
    get the room that was left before it."""
    files = path.glob("rows/*/*.copy.gz")
    return {each.name: sorted(gzip.decompress(each.read_bytes()).split(b"\n")) for each in files}


@pytest.fixture
def vector_index(committed: None) -> Iterator[None]:
    """An embedder whose vectors have a size of their own, with the index that `reembed` makes for it."""
    embedder = Embedder.objects.create(name="Small", kind=Embedder.Kind.OPENAI, model="small", dimensions=48)
    create_vector_index(embedder.dimensions)
    yield
    embedder.delete()
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX chunk_embedding_48")


@pytest.fixture
def migrated(committed: None) -> Iterator[str]:
    """The URL of a database of its own, as migrations leave it."""
    with connection._nodb_cursor() as server:
        server.execute("DROP DATABASE IF EXISTS restored")
        server.execute(f'CREATE DATABASE restored TEMPLATE "{migrated_database()}"')
        yield database_url({**connection.settings_dict, "NAME": "restored"})
        server.execute("DROP DATABASE restored WITH (FORCE)")


def test_a_restore_goes_on_where_it_was_broken_off_and_brings_everything_back(
    person: Person, settings: Settings, tmp_path: Path, migrated: str, vector_index: None
) -> None:
    settings.MEDIA_ROOT = tmp_path / "before"
    past(person.user, 2)
    name = default_storage.save("ab/cd/abcd", ContentFile(b"what was uploaded"))
    made = backed_up(tmp_path / "backup")
    assert (tmp_path / "backup" / "objects" / name).read_bytes() == b"what was uploaded"
    secret = "secret-of-the-scripted-provider"
    assert not any(settings.SECRET_KEY in path.read_text(errors="ignore") for path in tmp_path.rglob("*.json"))

    def manage(*arguments: str) -> "subprocess.CompletedProcess[str]":
        keys = {"SECRET_KEY": settings.SECRET_KEY, "ENCRYPTION_KEYS": ",".join(settings.ENCRYPTION_KEYS)}
        environment = {**os.environ, **keys, "DATABASE_URL": migrated, "DATA_DIR": str(tmp_path / "after")}
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    refused = manage("restore", str(tmp_path / "backup"))
    assert refused.returncode == 1 and "The database is not empty." in refused.stderr
    with psycopg.connect(migrated, autocommit=True) as database:  # as if it had ended after the migrations
        database.execute(f"CREATE TABLE {STATE} (step text PRIMARY KEY, said jsonb NOT NULL)")
        done = {"backup": made["id"], "migrated": ""}
        for step in done.items():
            database.execute(f"INSERT INTO {STATE} VALUES (%s, to_jsonb(%s::text))", step)  # noqa: S608 - a constant
        restored = manage("restore", str(tmp_path / "backup"))
        assert restored.returncode == 0, restored.stderr
        assert "All is restored." in restored.stdout and secret not in restored.stdout
        with connection.cursor() as cursor:
            cursor.execute(STRUCTURE)
            assert database.execute(STRUCTURE).fetchall() == cursor.fetchall()
    assert (tmp_path / "after" / "files" / name).read_bytes() == b"what was uploaded"
    again = manage("backup", str(tmp_path / "again"))
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "again" / MANIFEST).read_text())["sequences"] == made["sequences"]
    before, after = rows_of(tmp_path / "backup"), rows_of(tmp_path / "again")
    assert {each["name"] + ".copy.gz" for each in made["tables"]} == before.keys() == after.keys()
    for table in before:
        assert after[table] == before[table], table


def test_what_does_not_fit_is_refused_with_what_to_do(committed: None, settings: Settings, tmp_path: Path) -> None:
    settings.MEDIA_ROOT = tmp_path / "files"

    def refused() -> str:
        with pytest.raises(CommandError) as error:
            call_command("restore", str(tmp_path / "backup"), stdout=StringIO())
        return str(error.value)

    assert "There is no whole backup" in refused()
    made = backed_up(tmp_path / "backup")
    assert "The database is not empty. Make a new one" in refused()
    keys, settings.ENCRYPTION_KEYS = settings.ENCRYPTION_KEYS, ["another key " * 5]
    assert "made with other keys" in refused()
    settings.ENCRYPTION_KEYS = keys
    packed = tmp_path / "backup" / "rows" / made["id"] / "accounts_user.copy.gz"
    packed.write_bytes(packed.read_bytes()[:-1])
    assert "accounts_user.copy.gz is not what was written" in refused()
    made["migrations"].append("chat.9999_of_tomorrow")
    (tmp_path / "backup" / MANIFEST).write_text(json.dumps(made))
    assert "another version of Glasshouse" in refused()


def test_a_backup_into_an_open_folder_is_for_its_owner_alone(
    committed: None, settings: Settings, tmp_path: Path
) -> None:
    settings.MEDIA_ROOT = tmp_path / "media"
    default_storage.save("ab/cd/abcd", ContentFile(b"what was uploaded"))
    target = tmp_path / "backup"
    target.mkdir()
    target.chmod(0o755)
    for _ in range(2):
        output = StringIO()
        call_command("backup", str(target), stdout=output)
        assert "is open to others of this machine (mode 755)" in output.getvalue()
        found = list(target.rglob("*"))
        assert {path.stat().st_mode & 0o777 for path in found if path.is_file()} == {0o600}
        assert {path.stat().st_mode & 0o777 for path in found if path.is_dir()} == {0o700}
