"""A backup is a directory: `manifest.json`, the rows of all tables, and the objects of the storage.

    manifest.json          what it holds, of which version, and the fingerprints of the keys that open its secrets
    rows/<id>/rows.dump    all tables at one moment, by pg_dump in its custom format
    objects/…              every object of the storage, by its name

The manifest is written last, so a directory with one is a whole backup. A backup into the same directory again copies
only objects that are new, also when the one before was broken off; the rows are always those of one moment, all anew.

A backup of an older version is restored as it is, and migrated. Its rows may be of format 1 (`config.backup.rows`).
"""

import hashlib
import hmac
import json
import shutil
import time
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from config.backup import objects, postgres, rows
from config.backup.postgres import BackupRefused
from config.http.health import missing_migrations
from core.private_files import make_private, make_target, open_private
from files.index.indexing import create_vector_index
from files.models import Embedder

FORMAT, FORMAT_OF_COPIES = 2, 1
MANIFEST = "manifest.json"
DUMP = "rows.dump"
STATE = "glasshouse_restore"  # the table of a restore that is under way: its steps that are done
_ANYTHING = """
SELECT to_regclass(%s) IS NOT NULL, EXISTS (
    SELECT FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e'))
"""


class Say(Protocol):
    def __call__(self, line: str, /) -> object: ...


def back_up(target: Path, say: Say) -> None:
    if missing_migrations():
        raise BackupRefused("Migrations are missing in the database. Run manage.py migrate, then make the backup.")
    server = postgres.server_major()
    program = postgres.find_program("pg_dump", server)
    if warning := make_target(target):
        say(warning.english)
    before = target / MANIFEST
    say(f"{objects.copy_out(target / 'objects'):,} objects are copied.")
    own = str(uuid4())
    directory = target / "rows" / own
    make_private(directory, below=target)
    made = timezone.now()
    postgres.dump(program, directory / DUMP)
    say(f"The rows are written, {(directory / DUMP).stat().st_size / 1e6:,.1f} MB.")
    say(f"{objects.copy_out(target / 'objects'):,} objects that came meanwhile are copied.")
    manifest = {
        "format": FORMAT,
        "id": own,
        "made": made.isoformat(),
        "migrations": _migrations(),
        "keys": _fingerprints(),
        "server": server,
        "pg_dump": program.major,
        "sha256": _digest(directory / DUMP),
    }
    written_aside = before.with_suffix(".partial")
    with open_private(written_aside) as file:
        file.write(json.dumps(manifest, indent=1).encode())
    written_aside.rename(before)
    for each in directory.parent.iterdir():
        if each != directory:
            shutil.rmtree(each)
    say(f"The backup in {target} is whole.")


def restore(source: Path, say: Say) -> None:
    """Into an empty database and the storage of the settings; broken off, it goes on where it was."""
    manifest = _manifest(source)
    directory = source / "rows" / manifest["id"]
    _check_files(manifest, directory)
    program = None
    if manifest["format"] == FORMAT:
        program = postgres.find_program("pg_restore", max(manifest["pg_dump"], postgres.server_major()))
    _begin(manifest)
    say(f"{objects.copy_in(source / 'objects'):,} objects are copied into the storage.")
    begun = time.monotonic()
    if "rows" not in _done():
        if program:
            jobs = postgres.jobs()
            say(f"The rows are loaded and their indexes made, {jobs} at a time.")
            postgres.load(program, directory / DUMP, jobs)
        else:
            say("The rows are loaded and their indexes made.")
            rows.load(manifest["migrations"], manifest["tables"], manifest["sequences"], directory, STATE)
        _note("rows")
        say(f"That took {(time.monotonic() - begun) / 60:,.1f} minutes.")
    call_command("migrate", interactive=False, verbosity=0)
    # `reembed` makes these, not a migration, so an empty database has only that of the bundled embedder.
    for dimensions in Embedder.objects.order_by("dimensions").values_list("dimensions", flat=True).distinct():
        create_vector_index(dimensions)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        cursor.execute(f"DROP TABLE {STATE}")
    say("All is restored. Start the processes; manage.py doctor says what does not fit.")


def _manifest(source: Path) -> Any:
    try:
        manifest = json.loads((source / MANIFEST).read_text())
    except FileNotFoundError:
        raise BackupRefused(
            f"There is no whole backup in {source}: it has no {MANIFEST}. Name another directory."
        ) from None
    if manifest["format"] not in (FORMAT, FORMAT_OF_COPIES) or not set(manifest["migrations"]) <= set(_migrations()):
        raise BackupRefused(
            f"This backup was made by a newer version of Glasshouse, on {manifest['made']}. Install that version, then "
            "restore it."
        )
    keys = _fingerprints()
    if any(not set(needed) <= set(keys[kind]) for kind, needed in manifest["keys"].items()):
        raise BackupRefused(
            "This backup was made with other keys, so its secrets could not be read. Set SECRET_KEY and "
            "ENCRYPTION_KEYS, or the file secret_key in DATA_DIR, to those of the installation that it is from."
        )
    return manifest


def _check_files(manifest: Any, directory: Path) -> None:
    if manifest["format"] == FORMAT:
        digests = {DUMP: manifest["sha256"]}
        if postgres.server_major() < manifest["server"]:
            raise BackupRefused(
                f"This backup is of PostgreSQL {manifest['server']}, and the server of DATABASE_URL is older. Restore "
                f"it into PostgreSQL {manifest['server']} or later."
            )
    else:
        digests = {rows.file_of(table): table["sha256"] for table in manifest["tables"]}
    broken = [name for name, digest in digests.items() if _digest(directory / name) != digest]
    if broken:
        raise BackupRefused(
            f"The backup is damaged: {', '.join(broken[:5])} is not what was written. Take another backup."
        )


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, or nothing where it is missing."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def _begin(manifest: Any) -> None:
    """Notes in the database which backup is restored into it, unless it is the one that was broken off."""
    with connection.cursor() as cursor:
        cursor.execute(_ANYTHING, [STATE])
        under_way, anything = cursor.fetchone()
    if _done().get("begun") != manifest["id"] if under_way else anything:
        raise BackupRefused(
            "The database is not empty. Make a new one, in which a superuser has made the extension vector, and name "
            "it in DATABASE_URL."
        )
    if not under_way:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {STATE} (step text PRIMARY KEY, said jsonb NOT NULL)")
            _note("begun", manifest["id"])


def _note(step: str, said: Any = "") -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {STATE} VALUES (%s, %s)", [step, json.dumps(said)])  # noqa: S608 - a constant


def _done() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT step, said::text FROM {STATE}")  # noqa: S608 - a constant
        return {step: json.loads(said) for step, said in cursor.fetchall()}


def _migrations() -> list[str]:
    """Those of this version of Glasshouse and its packages: what the tables are like."""
    loader = MigrationLoader(None)
    return sorted(f"{app}.{name}" for app, name in loader.disk_migrations or ())


def _fingerprints() -> dict[str, list[str]]:
    """Of the keys, which cannot be found out from them."""
    keys = {"secret": [settings.SECRET_KEY], "encryption": settings.ENCRYPTION_KEYS}
    return {kind: [_fingerprint(key) for key in several] for kind, several in keys.items()}


def _fingerprint(key: str) -> str:
    return hmac.new(key.encode(), b"glasshouse backup", hashlib.sha256).hexdigest()[:24]
