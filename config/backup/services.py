"""Make and restore backups. A backup is a directory with a manifest, the rows of all tables, and the stored objects.

    manifest.json          its contents, the version, and the fingerprints of the keys that open its secrets
    rows/<id>/rows.dump    all tables at one moment, in pg_dump's custom format
    objects/…              every object of the storage, by its name

The manifest is written last, so a directory with a manifest is a complete backup. A second backup into the same
directory copies only new objects, even if the first was interrupted. The rows are always dumped again, at one moment.

A backup of an older version is restored as it is, and then migrated. Its rows may have format 1 (`config.backup.rows`).
"""

import hashlib
import hmac
import json
import shutil
import time
from pathlib import Path
from typing import NotRequired, Protocol, TypedDict
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

FORMAT = 2
COPY_FORMAT = 1
MANIFEST = "manifest.json"
DUMP = "rows.dump"
STATE = "glasshouse_restore"  # the table of a running restore, with its finished steps
_ANY_OBJECT = """
SELECT to_regclass(%s) IS NOT NULL, EXISTS (
    SELECT FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e'))
"""


class PrintLine(Protocol):
    """Prints a line for the operator."""

    def __call__(self, line: str, /) -> object: ...


# The contents of `manifest.json`. Format 2 has `server`, `pg_dump` and `sha256`; format 1 has `tables` and `sequences`.
Manifest = TypedDict(  # noqa: UP013 - a mapping, since stored backups determine the keys
    "Manifest",
    {
        "format": int,
        "id": str,
        "made": str,  # ISO 8601
        "migrations": list[str],
        "keys": dict[str, list[str]],
        "server": NotRequired[int],  # major version
        "pg_dump": NotRequired[int],  # major version
        "sha256": NotRequired[str],
        "tables": NotRequired[list[rows.Table]],
        "sequences": NotRequired[dict[str, int | None]],
    },
)


def back_up(target: Path, say: PrintLine) -> None:
    """Write a backup into the directory `target`. Raises BackupRefused."""
    if missing_migrations():
        raise BackupRefused("The database lacks migrations. Run manage.py migrate, then make the backup.")
    server = postgres.server_major()
    program = postgres.find_program("pg_dump", server)
    if warning := make_target(target):
        say(warning.english)
    path = target / MANIFEST
    say(f"{objects.copy_out(target / 'objects'):,} objects were copied.")
    backup_id = str(uuid4())
    directory = target / "rows" / backup_id
    make_private(directory, below=target)
    now = timezone.now()
    postgres.dump(program, directory / DUMP)
    say(f"The rows were written, {(directory / DUMP).stat().st_size / 1e6:,.1f} MB.")
    say(f"{objects.copy_out(target / 'objects'):,} objects that were added meanwhile were copied.")
    manifest: Manifest = {
        "format": FORMAT,
        "id": backup_id,
        "made": now.isoformat(),
        "migrations": _migrations(),
        "keys": _fingerprints(),
        "server": server,
        "pg_dump": program.major,
        "sha256": _digest(directory / DUMP),
    }
    partial = path.with_suffix(".partial")
    with open_private(partial) as file:
        file.write(json.dumps(manifest, indent=1).encode())
    partial.rename(path)
    for each in directory.parent.iterdir():
        if each != directory:
            shutil.rmtree(each)
    say(f"The backup in {target} is complete.")


def restore(source: Path, say: PrintLine) -> None:
    """Restore a backup into an empty database and the storage. An interrupted restore continues where it stopped.

    Raises BackupRefused.
    """
    manifest = _load_manifest(source)
    directory = source / "rows" / manifest["id"]
    _check_files(manifest, directory)
    program = None
    if manifest["format"] == FORMAT:
        program = postgres.find_program("pg_restore", max(manifest["pg_dump"], postgres.server_major()))
    _begin(manifest)
    say(f"{objects.copy_in(source / 'objects'):,} objects were copied into the storage.")
    start = time.monotonic()
    if "rows" not in _finished_steps():
        if program:
            jobs = postgres.jobs()
            say(f"Loading the rows and creating the indexes, {jobs} at a time.")
            postgres.load(program, directory / DUMP, jobs)
        else:
            say("Loading the rows and creating the indexes.")
            rows.load(manifest["migrations"], manifest["tables"], manifest["sequences"], directory, STATE)
        _record_step("rows")
        say(f"That took {(time.monotonic() - start) / 60:,.1f} minutes.")
    call_command("migrate", interactive=False, verbosity=0)
    # `reembed` creates these indexes, not a migration, so a new database has only the index of the bundled embedder.
    for dimensions in Embedder.objects.order_by("dimensions").values_list("dimensions", flat=True).distinct():
        create_vector_index(dimensions)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        cursor.execute(f"DROP TABLE {STATE}")
    say("The backup is restored. Start the processes. manage.py doctor reports problems.")


def _load_manifest(source: Path) -> Manifest:
    """Return the manifest. Raises BackupRefused if this version or its keys cannot restore the backup."""
    try:
        manifest: Manifest = json.loads((source / MANIFEST).read_text())
    except FileNotFoundError:
        raise BackupRefused(
            f"{source} has no complete backup, since it has no {MANIFEST}. Name another directory."
        ) from None
    if manifest["format"] not in (FORMAT, COPY_FORMAT) or not set(manifest["migrations"]) <= set(_migrations()):
        raise BackupRefused(
            f"This backup was made by a newer version of Glasshouse, on {manifest['made']}. Install that version, then "
            "restore it."
        )
    keys = _fingerprints()
    if any(not set(needed) <= set(keys[kind]) for kind, needed in manifest["keys"].items()):
        raise BackupRefused(
            "This backup was made with other keys, so its secrets could not be read. Set SECRET_KEY and "
            "ENCRYPTION_KEYS, or the file secret_key in DATA_DIR, to those of the installation that made it."
        )
    return manifest


def _check_files(manifest: Manifest, directory: Path) -> None:
    """Raise BackupRefused if a file is damaged, or if the server is older than the backup's."""
    if manifest["format"] == FORMAT:
        digests = {DUMP: manifest["sha256"]}
        if postgres.server_major() < manifest["server"]:
            raise BackupRefused(
                f"This backup is of PostgreSQL {manifest['server']}, and the server of DATABASE_URL is older. Restore "
                f"it into PostgreSQL {manifest['server']} or later."
            )
    else:
        digests = {rows.file_name(table): table["sha256"] for table in manifest["tables"]}
    broken = [name for name, digest in digests.items() if _digest(directory / name) != digest]
    if broken:
        raise BackupRefused(
            f"The backup is damaged: {', '.join(broken[:5])} was changed or is missing. Use another backup."
        )


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file; empty if the file is missing."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def _begin(manifest: Manifest) -> None:
    """Record in the database which backup is being restored. Raises BackupRefused if the database is not empty.

    An interrupted restore of the same backup may continue.
    """
    with connection.cursor() as cursor:
        cursor.execute(_ANY_OBJECT, [STATE])
        is_running, has_objects = cursor.fetchone()
    if _finished_steps().get("begun") != manifest["id"] if is_running else has_objects:
        raise BackupRefused(
            "The database is not empty. Create a new one, in which a superuser has created the extension vector, and "
            "set DATABASE_URL to it."
        )
    if not is_running:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {STATE} (step text PRIMARY KEY, said jsonb NOT NULL)")
            _record_step("begun", manifest["id"])


def _record_step(step: str, value: str = "") -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {STATE} VALUES (%s, %s)", [step, json.dumps(value)])  # noqa: S608 - a constant


def _finished_steps() -> dict[str, str]:
    """Return the values of the finished steps, by the name of the step."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT step, said::text FROM {STATE}")  # noqa: S608 - a constant
        return {step: json.loads(value) for step, value in cursor.fetchall()}


def _migrations() -> list[str]:
    """Return the migrations of this version of Glasshouse and of its packages."""
    loader = MigrationLoader(None)
    return sorted(f"{app}.{name}" for app, name in loader.disk_migrations or ())


def _fingerprints() -> dict[str, list[str]]:
    """Return the fingerprints of the keys. They do not reveal the keys."""
    keys = {"secret": [settings.SECRET_KEY], "encryption": settings.ENCRYPTION_KEYS}
    return {kind: [_fingerprint(key) for key in several] for kind, several in keys.items()}


def _fingerprint(key: str) -> str:
    return hmac.new(key.encode(), b"glasshouse backup", hashlib.sha256).hexdigest()[:24]
