"""Serve `/v1/files` of OpenAI's protocol: the files of a user, which requests can reference by their ids."""

from typing import TypedDict
from uuid import UUID

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, QueryDict, StreamingHttpResponse

from accounts.models import User
from chat.openai_api.errors import invalid_request
from core.errors import ProductError
from files import services
from files.models import File
from files.pages import download

FILE_PREFIX = "file-"  # before the ids of files, as in OpenAI's protocol
FORM_FIELDS = ("file", "purpose")  # parts of the form of an upload
PURPOSE = "user_data"  # the one purpose that files have here
MAX_LISTED = 10_000
DEFAULT_LIMIT = 1_000  # files on a page
_STATUSES = {
    File.Status.READY: "processed",
    File.Status.TOO_LONG: "processed",
    File.Status.FAILED: "error",
}


class FileEntry(TypedDict):
    """A file. `status` is `uploaded` until it has been read. `status_details` is the reason of an error."""

    id: str
    object: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: str
    status_details: str | None


class FileEntries(TypedDict):
    """A page of files."""

    object: str
    data: list[FileEntry]
    has_more: bool
    first_id: str | None
    last_id: str | None


class FileDeletion(TypedDict):
    """The answer to a deletion."""

    id: str
    object: str
    deleted: bool


def entry(file: File) -> FileEntry:
    """Return the file in OpenAI's form."""
    return {
        "id": f"{FILE_PREFIX}{file.pk}",
        "object": "file",
        "bytes": file.size,
        "created_at": int(file.created.timestamp()),
        "filename": file.name,
        "purpose": PURPOSE,
        "status": _STATUSES.get(File.Status(file.status), "uploaded"),
        "status_details": file.problem.english if file.status == File.Status.FAILED else None,
    }


def find_file(user: User, file_id: str, param: str = "file_id") -> File:
    """Return a file that the user may see, by the id of its entry. Raises `file_not_found` (404)."""
    try:
        file = File.objects.visible_to(user).filter(pk=UUID(file_id.removeprefix(FILE_PREFIX))).first()
    except ValueError:
        file = None
    if file is None:
        sentence = f"There is no file “{file_id[:100]}”. Upload it with POST /v1/files and send the id of the answer."
        raise ProductError("file_not_found", sentence, status=404, param=param)
    return file


def list_files(user: User, query: QueryDict) -> FileEntries:
    """Return the user's own files, newest first unless `order` is `asc`. `after`: the last file of the page before."""
    oldest_first = query.get("order") == "asc"
    rows = File.objects.owned_by(user).order_by("pk" if oldest_first else "-pk")  # ids are in the order of time
    if after := query.get("after"):
        place = find_file(user, after, "after").pk
        rows = rows.filter(pk__gt=place) if oldest_first else rows.filter(pk__lt=place)
    limit = _limit(query.get("limit", str(DEFAULT_LIMIT)))
    purposes = query.get("purpose", PURPOSE)
    page = list(rows[: limit + 1]) if purposes == PURPOSE else []
    data = [entry(file) for file in page[:limit]]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "has_more": len(page) > limit, "first_id": first, "last_id": last}


def _limit(value: str) -> int:
    if not value.isdecimal() or len(value) > len(str(MAX_LISTED)) or not 1 <= int(value) <= MAX_LISTED:
        raise invalid_request("limit", f"“limit” must be a whole number from 1 to {MAX_LISTED:,}.")
    return int(value)


def upload(user: User, request: HttpRequest) -> FileEntry:
    """Store an uploaded file. Its text is extracted in the background. Raises the errors of `files.services.upload`.

    Raises `unknown_parameter` (400) for other parts of the form, such as `expires_after`: files stay until they are
    deleted.
    """
    for name in (*request.POST, *request.FILES):
        if name not in FORM_FIELDS:
            sentence = f"There is no part “{name[:100]}” in this form. Its parts are: {', '.join(FORM_FIELDS)}."
            raise invalid_request(name, sentence, "unknown_parameter")
    content = request.FILES.get("file")
    if not isinstance(content, UploadedFile):
        sentence = "Send the file as multipart/form-data in the field “file”."
        raise invalid_request("file", sentence, "missing_required_parameter")
    return entry(services.upload(user=user, name=content.name or "", content=content))


def delete(user: User, file_id: str) -> FileDeletion:
    """Delete a file of the user. Raises `file_not_found`, `not_found` (404) and `legal_hold` (409)."""
    file = find_file(user, file_id)
    identifier = f"{FILE_PREFIX}{file.pk}"
    services.delete(user=user, file=file)
    return {"id": identifier, "object": "file", "deleted": True}


def content(user: User, file_id: str) -> StreamingHttpResponse:
    """Return the original bytes. Raises `file_not_found` and `file_lost` (404)."""
    return download(find_file(user, file_id))
