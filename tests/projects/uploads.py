"""Uploading in tests, as a program does it."""

from typing import Any

from tests.product import WAIT, Caller, until

FINAL = ("ready", "too_long", "failed")


def upload(caller: Caller, name: str, content: bytes | str, expect: int = 201) -> Any:
    body = content.encode() if isinstance(content, str) else content
    response = caller.http.post("files/", files={"file": (name, body)})
    assert response.status_code == expect, response.text
    return response.json()


def read(caller: Caller, file: str) -> Any:
    """The file as soon as it is read, or failed."""

    def look() -> Any:
        answer = caller.get(f"files/{file}/")
        return answer if answer["status"] in FINAL else None

    return until(look, f"file {file} is read", WAIT)


def uploaded(caller: Caller, name: str, content: bytes | str) -> Any:
    return read(caller, upload(caller, name, content)["id"])


def searchable(caller: Caller, name: str, content: bytes | str) -> Any:
    file = uploaded(caller, name, content)
    until(lambda: caller.get(f"files/{file['id']}/")["searchable"], f"{name} can be searched")
    return file


def pdf(*pages: str) -> bytes:
    """A PDF with one line of text on each page."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for text in pages:
        stream = f"BT /F1 12 Tf 50 780 Td ({text}) Tj ET".encode()
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
        kids.append(len(objects))
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids))
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(body))
    return body + b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table) + trailer
