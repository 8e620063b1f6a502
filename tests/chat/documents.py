"""Files as a model gets them with a question."""

import io
import json
from typing import Any

from PIL import Image

from tests.conftest import Person
from tests.product import Server, until

PREFIX = "Here are some documents provided for context, they may not all be relevant:"


def upload(person: Person, name: str, content: bytes) -> dict[str, Any]:
    """Uploads and waits until the file has been read."""
    response = person.caller.http.post("files/", files={"file": (name, io.BytesIO(content))})
    assert response.status_code == 201, response.text
    path = f"files/{response.json()['id']}/"

    def read() -> Any:
        file = person.caller.get(path)
        return file if file["status"] not in ("uploaded", "processing") else None

    row: dict[str, Any] = until(read, f"{name} has been read")
    return row


def ask_and_wait(person: Person, place: str, text: str, **more: Any) -> dict[str, Any]:
    turn = person.caller.post(f"conversations/{place}/turns/", {"text": text, **more})["turns"][0]
    ended: dict[str, Any] = person.caller.ended(turn["id"])
    assert ended["status"] == "done", ended["error"]
    return ended


def sent(server: Server, mark: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = server.model.finished(mark)[-1].body["messages"]
    return messages


def documents(message: dict[str, Any]) -> list[dict[str, Any]]:
    prefix, _, body = message["content"].partition("\n")
    assert prefix == PREFIX
    rows: list[dict[str, Any]] = json.loads(body)["documents"]
    return rows


def picture(width: int = 64, height: int = 32) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(stream, "PNG")
    return stream.getvalue()
