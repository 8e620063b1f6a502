"""How the reading process hands its result over: one line of JSON, then the text as UTF-8."""

import json

from files.extraction.values import Extracted, ExtractionError


def encoded(result: Extracted | ExtractionError) -> bytes:
    if isinstance(result, ExtractionError):
        return json.dumps({"error": result.code}).encode() + b"\n"
    head = {
        "media_type": result.media_type,
        "spans": result.spans,
        "width": result.width,
        "height": result.height,
    }
    return json.dumps(head).encode() + b"\n" + result.text.encode()


def decoded(data: bytes) -> Extracted:
    """Raises the `ExtractionError` that was sent."""
    head, _, text = data.partition(b"\n")
    fields = json.loads(head)
    if "error" in fields:
        raise ExtractionError(fields["error"])
    spans = [(start, end) for start, end in fields["spans"]]
    return Extracted(fields["media_type"], text.decode(), spans, fields["width"], fields["height"])
