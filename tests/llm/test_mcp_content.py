"""Results of MCP tools as text and files: pure functions."""

import base64
from typing import Any

import pytest

from llm.tools.mcp_content import MAX_FILES, to_output
from llm.types.tools import ToolOutput


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def result_of(*blocks: Any) -> ToolOutput:
    return to_output({"content": list(blocks)}, "draw")


def resource(**members: Any) -> dict[str, Any]:
    return {"type": "resource", "resource": members}


def test_an_image_is_named_after_its_tool_and_two_are_told_apart() -> None:
    image = {"type": "image", "data": encoded(b"one"), "mimeType": "image/png"}
    output = result_of({"type": "text", "text": "Look:"}, image, image)
    assert output.text == "Look:\n[image: the file draw.png]\n[image: the file draw-2.png]" == output.full_text
    assert [(each.name, each.content, each.image) for each in output.tool_files] == [
        ("draw.png", b"one", True),
        ("draw-2.png", b"one", True),
    ]


@pytest.mark.parametrize(
    ("uri", "media_type", "name"),
    [
        ("file:///a/b%20c.py", "text/plain", "b c.py"),
        ("demo://resource/static/text/1", "text/plain", "1.txt"),
        ("repo://x/main/README.md?ref=1", "text/plain; charset=utf-8", "README.md"),
        ("https://example.org", "text/html", "example.org.html"),
        ("file:///a/report", "application/pdf", "report.pdf"),
        ("file:///a/REPORT.PDF", "application/pdf", "REPORT.PDF"),
        ("file:///a/..%2F..%2Fetc", "", ".._.._etc"),
        ("http://[bad", "", "draw"),
        ("", "nonsense", "draw"),
    ],
)
def test_a_resource_is_named_after_its_address_and_type(uri: str, media_type: str, name: str) -> None:
    [file] = result_of(resource(uri=uri, mimeType=media_type, blob=encoded(b"x"))).tool_files
    assert file.name == name


def test_the_text_of_a_resource_is_in_the_result_and_a_file() -> None:
    output = result_of(resource(uri="repo://a.py", text="import os"))
    assert output.text == "[repo://a.py]\n[resource: the file a.py]\nimport os"
    [file] = output.tool_files
    assert (file.content, file.text_included, file.image) == (b"import os", True, False)


def test_a_picture_in_a_resource_is_an_image() -> None:
    [file] = result_of(resource(uri="file:///a.png", mimeType="image/png", blob=encoded(b"x"))).tool_files
    assert file.image


@pytest.mark.parametrize("data", ["", "%%%", None, 5])
def test_a_damaged_part_is_named_and_is_no_file(data: Any) -> None:
    output = result_of({"type": "image", "data": data, "mimeType": "image/png"}, resource(uri="a:b", blob=data))
    assert output.text == "[image: damaged, not shown]\n[resource: a:b, damaged or empty, not shown]"
    assert not output.tool_files


def test_a_link_keeps_name_address_and_description() -> None:
    link = {"type": "resource_link", "uri": "repo://b.py", "name": "b.py", "mimeType": "text/plain"}
    assert result_of(link | {"description": "Locks."}).text == "[resource_link: b.py repo://b.py text/plain] Locks."


def test_files_beyond_the_most_of_a_result_are_named() -> None:
    image = {"type": "image", "data": encoded(b"x"), "mimeType": "image/png"}
    output = result_of(*[image] * (MAX_FILES + 1))
    assert len(output.tool_files) == MAX_FILES
    assert output.text.splitlines()[-1] == f"[image: not kept, since a result has at most {MAX_FILES} files]"
