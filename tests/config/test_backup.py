"""A backup holds everything. It is restored into an empty database, by its version or a later one with its keys."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
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

from config.backup import postgres
from config.backup.postgres import BackupRefused, find_program, server_major
from config.backup.services import DUMP, MANIFEST, STATE
from files.index.indexing import create_vector_index
from files.models import Embedder
from scripts.services import migrated_database
from tests.chat.conversations import past
from tests.conftest import Person
from tests.product import ROOT, database_url

pytestmark = pytest.mark.process

Execute = Callable[[str], list[Any]]
Manage = Callable[..., "subprocess.CompletedProcess[str]"]

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position
"""
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


def rows_of(run: Execute) -> dict[str, Any]:
    """Return a digest of the rows of each table, and the sequences, of the database that `run` asks."""
    tables = [name for (name,) in run(TABLES)]
    digest = "SELECT count(*), md5(string_agg(t::text, chr(10) ORDER BY t::text)) FROM {} t"
    sequences = run("SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1")
    return {name: run(digest.format(name)) for name in tables} | {"sequences": sequences}


def fetch_rows(query: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def write_format_1(path: Path, database: "psycopg.Connection[Any]", manifest: dict[str, Any]) -> None:
    """Write a backup in the format from before pg_dump, with the members of `manifest`."""
    rows = path / "rows" / manifest["id"]
    rows.mkdir(parents=True)
    tables = []
    for (name,) in database.execute(TABLES).fetchall():
        column_rows = database.execute(COLUMNS, [name]).fetchall()
        listed = ", ".join(f'"{column}"' for (column,) in column_rows)
        copying = f"COPY {name} ({listed}) TO STDOUT"
        with gzip.open(rows / f"{name}.copy.gz", "wb") as file, database.cursor().copy(copying) as copy:
            file.writelines(bytes(piece) for piece in copy)
        digest = hashlib.sha256((rows / f"{name}.copy.gz").read_bytes()).hexdigest()
        columns = [column for (column,) in column_rows]
        tables.append({"name": name, "columns": columns, "rows": 0, "sha256": digest})
    sequences = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'public'"
    sequenced = dict(database.execute(sequences).fetchall())
    (path / MANIFEST).write_text(json.dumps(manifest | {"format": 1, "tables": tables, "sequences": sequenced}))


@pytest.fixture
def vector_index(committed: None) -> Iterator[None]:
    """Create an embedder with another size of vectors, and the index that `reembed` makes for it."""
    embedder = Embedder.objects.create(name="Small", kind=Embedder.Kind.OPENAI, model="small", dimensions=48)
    create_vector_index(embedder.dimensions)
    yield
    embedder.delete()
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX chunk_embedding_48")


@pytest.fixture
def empty(committed: None) -> Iterator[str]:
    """Yield the URL of an empty database in which a superuser has created the extension."""
    with connection._nodb_cursor() as server:
        server.execute("DROP DATABASE IF EXISTS restored")
        server.execute("CREATE DATABASE restored TEMPLATE template0")
        url = database_url({**connection.settings_dict, "NAME": "restored"})
        with psycopg.connect(url, autocommit=True) as database:
            database.execute("CREATE EXTENSION vector")
        yield url
        server.execute("DROP DATABASE restored WITH (FORCE)")


@pytest.fixture
def before(committed: None) -> Iterator[str]:
    """Yield the URL of a copy of the database at the last but one migration of `llm`."""
    with connection._nodb_cursor() as server:
        server.execute("DROP DATABASE IF EXISTS before")
        server.execute(f'CREATE DATABASE before TEMPLATE "{migrated_database()}"')
        url = database_url({**connection.settings_dict, "NAME": "before"})
        yield url
        server.execute("DROP DATABASE before WITH (FORCE)")


@pytest.fixture
def manage(settings: Settings, tmp_path: Path) -> Manage:
    """Run a command on the database of a URL, with the keys of the tests and the storage `after`."""

    def run(url: str, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
        keys = {"SECRET_KEY": settings.SECRET_KEY, "ENCRYPTION_KEYS": ",".join(settings.ENCRYPTION_KEYS)}
        environment = {**os.environ, **keys, "DATABASE_URL": url, "DATA_DIR": str(tmp_path / "after"), **more}
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    return run


def test_a_restore_that_was_broken_off_is_begun_again_and_brings_everything_back(
    person: Person, settings: Settings, tmp_path: Path, empty: str, vector_index: None, manage: Manage
) -> None:
    settings.MEDIA_ROOT = tmp_path / "before"
    past(person.user, 2)
    name = default_storage.save("ab/cd/abcd", ContentFile(b"what was uploaded"))
    manifest = backed_up(tmp_path / "backup")
    assert (tmp_path / "backup" / "objects" / name).read_bytes() == b"what was uploaded"
    secret = "secret-of-the-scripted-provider"
    assert not any(settings.SECRET_KEY in path.read_text(errors="ignore") for path in tmp_path.rglob("*.json"))
    with psycopg.connect(empty, autocommit=True) as database:
        # As if it had ended amid the rows: of some tables they are loaded, no index is made.
        database.execute(f"CREATE TABLE {STATE} (step text PRIMARY KEY, said jsonb NOT NULL)")
        database.execute(f"INSERT INTO {STATE} VALUES ('begun', to_jsonb(%s::text))", [manifest["id"]])  # noqa: S608 - a constant
        dump = tmp_path / "backup" / "rows" / manifest["id"] / DUMP
        program = [find_program("pg_restore", server_major()).path, "--no-owner", "-n", "public", "-d", empty]
        for part in (["--section=pre-data"], ["--data-only", "-t", "chat_message", "-t", "accounts_user"]):
            subprocess.run([*program, *part, str(dump)], check=True)
        database.execute("TRUNCATE accounts_user")
        restored = manage(empty, "restore", str(tmp_path / "backup"))
        assert restored.returncode == 0, restored.stderr
        assert "The backup is restored." in restored.stdout and secret not in restored.stdout
        assert database.execute(STRUCTURE).fetchall() == fetch_rows(STRUCTURE)
        assert rows_of(lambda query: database.execute(query).fetchall()) == rows_of(fetch_rows)
    assert (tmp_path / "after" / "files" / name).read_bytes() == b"what was uploaded"
    again = manage(empty, "restore", str(tmp_path / "backup"))
    assert again.returncode == 1 and "The database is not empty." in again.stderr


@pytest.mark.parametrize("kind", [1, 2])
def test_a_backup_of_an_older_version_is_restored_and_migrated(
    kind: int, person: Person, settings: Settings, tmp_path: Path, empty: str, before: str, manage: Manage
) -> None:
    settings.MEDIA_ROOT = tmp_path / "before"
    manifest = backed_up(tmp_path / "backup")
    previous = sorted((ROOT / "llm" / "migrations").glob("0*.py"))[-2]
    back = manage(before, "migrate", "llm", previous.stem)
    assert back.returncode == 0, back.stderr
    dump = tmp_path / "backup" / "rows" / manifest["id"] / DUMP
    with psycopg.connect(before, autocommit=True) as database:
        database.execute("INSERT INTO auth_group (name) VALUES ('of the version before')")
        applied = database.execute("SELECT app || '.' || name FROM django_migrations ORDER BY 1").fetchall()
        manifest["migrations"] = [name for (name,) in applied]  # of other apps, too, if they depend on the last one
        old = rows_of(lambda query: database.execute(query).fetchall())
        if kind == 1:
            shutil.rmtree(tmp_path / "backup")
            write_format_1(tmp_path / "backup", database, manifest)
        else:
            program = find_program("pg_dump", server_major()).path
            subprocess.run([program, "-Fc", "-n", "public", "-f", str(dump), before], check=True)
            manifest["sha256"] = hashlib.sha256(dump.read_bytes()).hexdigest()
            (tmp_path / "backup" / MANIFEST).write_text(json.dumps(manifest))
    restored = manage(empty, "restore", str(tmp_path / "backup"))
    assert restored.returncode == 0, restored.stderr
    with psycopg.connect(empty, autocommit=True) as database:
        assert database.execute(STRUCTURE).fetchall() == fetch_rows(STRUCTURE)
        new = rows_of(lambda query: database.execute(query).fetchall())
    assert new["auth_group"] == old["auth_group"]
    changed = {name for name in old if new[name] != old[name]}
    assert changed <= {"django_migrations", "sequences", *(name for name in old if name.startswith("llm_"))}


def test_what_does_not_fit_is_refused_with_what_to_do(committed: None, settings: Settings, tmp_path: Path) -> None:
    settings.MEDIA_ROOT = tmp_path / "files"

    def refused() -> str:
        with pytest.raises(CommandError) as error:
            call_command("restore", str(tmp_path / "backup"), stdout=StringIO())
        return str(error.value)

    assert "has no complete backup" in refused()
    manifest = backed_up(tmp_path / "backup")
    assert "The database is not empty. Create a new one" in refused()
    keys, settings.ENCRYPTION_KEYS = settings.ENCRYPTION_KEYS, ["another key " * 5]
    assert "made with other keys" in refused()
    settings.ENCRYPTION_KEYS = keys
    packed = tmp_path / "backup" / "rows" / manifest["id"] / DUMP
    packed.write_bytes(packed.read_bytes()[:-1])
    assert f"{DUMP} was changed or is missing" in refused()
    for newer in ({"server": 99}, {"format": 3}, {"migrations": [*manifest["migrations"], "chat.9999_of_tomorrow"]}):
        (tmp_path / "backup" / MANIFEST).write_text(json.dumps(manifest | newer))
        assert ("PostgreSQL 99 or later" if "server" in newer else "a newer version of Glasshouse") in refused()


def test_programs_that_are_too_old_or_missing_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "WHEEL", "no_such_package")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        BackupRefused, match=r"pg_dump is not installed, and PostgreSQL 18 or later is needed\. Install"
    ):
        find_program("pg_dump", 18)
    program = tmp_path / "pg_dump"
    program.write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)'\n")
    program.chmod(0o755)
    with pytest.raises(BackupRefused, match="pg_dump is of version 15, and PostgreSQL 18"):
        find_program("pg_dump", 18)
    assert find_program("pg_dump", 14).major == 15


@pytest.mark.django_db
def test_the_password_is_on_no_command_line_and_in_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program in the place of pg_dump that writes down how it was called."""
    monkeypatch.setattr(postgres, "WHEEL", "no_such_package")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program, calls = tmp_path / "pg_dump", tmp_path / "calls"
    logging = f'{{ echo "$@"; cat $PGSERVICEFILE; stat -c %a $PGSERVICEFILE; }} > {calls}'
    answer = "echo 'pg_dump: error: connection failed' >&2; exit 1"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "pg_dump (PostgreSQL) 99.0" && exit\n{logging}\n{answer}\n'
    )
    program.chmod(0o755)
    parameters = {"host": "/sockets", "dbname": "with space", "password": "not to be seen", "sslmode": "require"}
    monkeypatch.setattr(connection, "get_connection_params", lambda: parameters | {"cursor_factory": None})
    with pytest.raises(BackupRefused, match=r"pg_dump could not write the rows: pg_dump: error: connection failed\."):
        postgres.dump(find_program("pg_dump", 99), tmp_path / DUMP)
    arguments, *service, mode = calls.read_text().splitlines()
    assert service == ["[glasshouse]", "host=/sockets", "dbname=with space", "sslmode=require"] and mode == "600"
    assert f"--file={tmp_path / DUMP}" in arguments and "not to be seen" not in arguments


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
        assert "is open to other users of this machine (mode 755)" in output.getvalue()
        paths = list(target.rglob("*"))
        assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o600}
        assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o700}
