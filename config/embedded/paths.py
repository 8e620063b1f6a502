"""The data directory: where the embedded services keep their data, the URLs that reach them while they run, and the
one supervisor that holds it."""

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

PROJECT_ROOT = Path(__file__).resolve().parents[2]
DATABASE = "glasshouse"
UPLOADS = "files"
POSTGRES_SOCKET = ".s.PGSQL.5432"
REDIS_SOCKET = "redis.sock"
# sockaddr_un.sun_path holds 108 bytes with the final NUL; PostgreSQL refuses to start above that.
LONGEST_SOCKET_PATH = 107
LEFTOVER_SECONDS = 20.0
OTHERS = 0o077  # the bits of a mode that let anybody but the owner do something
# What the product makes in its data directory, but for `pg`: PostgreSQL starts on nothing that is open to others. The
# directory may hold more, which is not ours to touch.
OURS = (UPLOADS, "redis", "run", "locale", "static", "secret_key", "up.lock", "children.lock", "celerybeat-schedule*")


class StartError(Exception):
    """The product cannot start. The message is one sentence for the operator: what is wrong and how to mend it."""


def data_dir() -> Path:
    """Absolute; a relative `DATA_DIR` counts from the current directory. Need not exist yet."""
    given = os.environ.get("DATA_DIR")
    return Path(given).expanduser().absolute() if given else PROJECT_ROOT / "var"


def socket_dir(data: Path) -> Path:
    """`run/` in the data directory or, where that is too long for a socket, a private directory under /tmp.

    Raises StartError when the directory under /tmp exists and is not ours alone: anyone may create names there, so a
    stranger could answer in the place of our database.
    """
    inside = data / "run"
    if len(os.fsencode(inside / POSTGRES_SOCKET)) <= LONGEST_SOCKET_PATH:
        return inside
    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    short = Path("/tmp") / f"glasshouse-{os.geteuid()}-{name}"  # noqa: S108 - its owner and mode are checked below
    try:
        found = short.lstat()
    except FileNotFoundError:
        return short
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise StartError(f"{short} is not a private directory of yours; remove it, or set DATA_DIR to a shorter path.")
    return short


def database_url(data: Path) -> str:
    """libpq's socket form: `postgresql://USER@/DBNAME?host=/socket/dir`."""
    return f"postgresql://{DATABASE}@/{DATABASE}?host={quote(str(socket_dir(data)))}"


def redis_url(data: Path) -> str:
    """redis-py's socket form: `unix:///path/redis.sock?db=0`."""
    return f"unix://{quote(str(socket_dir(data) / REDIS_SOCKET))}?db=0"


def make_data_dir(data: Path) -> None:
    """Closed to others when it is new; one that is there keeps its mode, but uploads in it are closed in any case, and
    all that is ours at the next start, see `close_to_others`.

    Raises StartError if it cannot be written.
    """
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data / UPLOADS).mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(PermissionError):  # of another owner, which doctor says
            (data / UPLOADS).chmod(0o700)
        with tempfile.TemporaryFile(dir=data):
            pass
    except OSError as error:
        raise StartError(
            f"The data directory {data} cannot be written ({error.strerror}); set DATA_DIR to one that can."
        ) from error


def open_to_others(data: Path) -> Iterator[Path]:
    """What is ours in the data directory and others on this machine could read, write or enter."""
    for found in (each for name in OURS for each in data.glob(name)):
        below = (os.path.join(folder, name) for folder, *names in os.walk(found) for name in (*names[0], *names[1]))
        for path in (str(found), *below):
            with contextlib.suppress(OSError):  # it has just gone, or lies in a folder that only its owner enters
                mode = os.lstat(path).st_mode
                if mode & OTHERS and not stat.S_ISLNK(mode):
                    yield Path(path)


def close_to_others(data: Path) -> None:
    """Folders 0700 and files 0600, whatever they were before, such as on a mounted volume that is open to all.

    What belongs to another user stays as it is, and `manage.py doctor` names it.
    """
    for path in open_to_others(data):
        with contextlib.suppress(OSError):
            path.chmod(stat.S_IMODE(path.lstat().st_mode) & ~OTHERS)


def secret_key(data: Path) -> str:
    """Made on the first call, the same on every later one, also when several processes make the first call at once.

    Raises StartError when there is none and the data directory cannot be written.
    """
    path = data / "secret_key"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        make_data_dir(data)
    except OSError as error:
        raise StartError(f"{path} cannot be read ({error.strerror}); run as its owner or set SECRET_KEY.") from error
    draft = data / f".secret_key.{os.getpid()}"
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(50) + "\n")
        file.flush()
        os.fsync(file.fileno())
    # A link fails where a rename would overwrite the key that another process has just made.
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
    return path.read_text().strip()


@contextmanager
def held(data: Path) -> Iterator[int]:
    """Yields a descriptor for children to inherit. Raises StartError when another supervisor holds the directory.

    Two locks: the supervisor's own, and one that each child holds as well, for as long as it lives. So a start soon
    after the supervisor was killed waits until the last process that writes here is gone.
    """
    with (data / "up.lock").open("a+") as own, (data / "children.lock").open("a") as shared:
        if not _locked(own.fileno()):
            own.seek(0)
            holder = own.read().strip() or "unknown"
            raise StartError(
                f"The data directory {data} is in use by another `manage.py up` (process {holder});"
                " stop that one first, or set DATA_DIR to another directory."
            )
        own.truncate(0)
        own.write(f"{os.getpid()}\n")
        own.flush()
        deadline = time.monotonic() + LEFTOVER_SECONDS
        while not _locked(shared.fileno()):
            if time.monotonic() > deadline:
                raise StartError(f"Processes of an earlier start still use {data}; `fuser -k {shared.name}` ends them.")
            time.sleep(0.05)
        yield shared.fileno()


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
