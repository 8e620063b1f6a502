"""Pages of lists, with cursors."""

from rest_framework.pagination import CursorPagination


class Pages(CursorPagination):
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200


def pages(*ordering: str, size: int = 50, at_most: int | None = 200) -> type[Pages]:
    """Return a paginator of `size` rows a page in this order, by fields that are never null.

    `at_most` is the largest `page_size` that a request may ask for; None takes no `page_size`.
    """
    parameter = None if at_most is None else "page_size"
    members = {"ordering": ordering, "page_size": size, "page_size_query_param": parameter, "max_page_size": at_most}
    return type("Pages", (Pages,), members)


NewestFirst = pages("-created", "-id")
OldestFirst = pages("created", "id")
ByUpdate = pages("-updated", "-id")
ByName = pages("name")
