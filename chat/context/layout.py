"""The order of the sections (context.md, section 2).

`history` is older turns with the files above their messages, `current` the newest turn with its files. The project's
files and their listing stay together; the reminder is last in every layout.
"""

from typing import Literal

Slot = Literal[
    "system", "tasks", "summary", "history", "persona", "project_files", "file_listing", "current", "reminder"
]

LAYOUTS: dict[str, tuple[Slot, ...]] = {
    # The seeds' order: what matters most is close to the newest question.
    "near_end": (
        "system",
        "tasks",
        "summary",
        "history",
        "persona",
        "project_files",
        "file_listing",
        "current",
        "reminder",
    ),
    # A large, unchanging prefix, which providers bill at a tenth.
    "files_first": (
        "system",
        "project_files",
        "file_listing",
        "tasks",
        "summary",
        "history",
        "persona",
        "current",
        "reminder",
    ),
    "all_first": (
        "system",
        "persona",
        "project_files",
        "file_listing",
        "tasks",
        "summary",
        "history",
        "current",
        "reminder",
    ),
}
