"""Numbers of documents, search results as JSON, and which project files are inline.

Rules: docs/develop/context.md, “Order” and “Files and projects”.
"""

import pytest

from chat.context.rendering import CitationNumbers, documents_json, number_documents, split_project_files
from chat.context.types import Document

FILES = [Document("a", tokens=300), Document("b", tokens=200), Document("c", tokens=99)]


def ids(files: list[Document]) -> list[str]:
    return [file.id for file in files]


def test_a_second_search_continues_where_the_first_ended() -> None:
    numbers = CitationNumbers()
    first = documents_json([Document("x", "X", "one"), Document("y", "Y", "two")], numbers)
    second = documents_json([Document("z", "Z", "three"), Document("x", "X", "one again")], numbers)
    assert first == (
        '{"documents": [{"document": 1, "title": "X", "contents": "one"}, '
        '{"document": 2, "title": "Y", "contents": "two"}]}'
    )
    assert '"document": 3, "title": "Z"' in second and '"document": 1, "title": "X"' in second


def test_numbers_given_before_are_kept() -> None:
    numbers = number_documents([Document("new"), Document("old", number=7), Document("newer")])
    assert [numbers.assign(name) for name in ("old", "new", "newer")] == [7, 8, 9]


def test_project_files_below_sixty_percent_are_all_inline() -> None:
    inline, searched = split_project_files(FILES, room=1_000)
    assert (ids(inline), searched) == (["a", "b", "c"], [])


def test_project_files_at_sixty_percent_are_reached_by_search() -> None:
    inline, searched = split_project_files(FILES, room=999)
    assert (inline, ids(searched)) == ([], ["a", "b", "c"])


def test_a_pinned_file_is_inline_first_if_it_fits_whole() -> None:
    inline, searched = split_project_files(FILES, room=800, pinned=frozenset({"b", "c"}))
    assert (ids(inline), ids(searched)) == (["b", "c"], ["a"])
    inline, searched = split_project_files(FILES, room=400, pinned=frozenset({"a", "c"}))
    assert (ids(inline), ids(searched)) == (["c"], ["a", "b"])


@pytest.mark.parametrize("room", [1_000_000, 0, -5])
def test_a_file_without_a_count_is_never_inline(room: int) -> None:
    inline, searched = split_project_files([Document("u")], room=room, pinned=frozenset({"u"}))
    assert (inline, ids(searched)) == ([], ["u"])
