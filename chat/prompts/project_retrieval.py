"""A project's files that are not in the prompt whole: what the model is told of them (the section `file_listing`, L).

A model with tools gets their list and searches by itself. For one without, its question is searched in its stead, so
that a small model reaches a large project too (seed: Onyx, projects); what is found stands below the list.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from chat.context.rendering import Numbers, documents_text
from chat.context.types import Block, ContextMessage
from chat.models import Message
from chat.prompts.attachments import Documents, ProjectFiles
from chat.tools.files import HITS, passages
from files.index.search import Hit, search_many
from files.models import File
from llm.tokens import Tokenizer

BY_SEARCH = "These files of the project can be reached by search; their text is not shown here:"
FOUND = "These files of the project are not shown whole; what was found in them for the newest question is below:"
# The list must be sent, so without a bound a project of a thousand files would leave no room for any question.
LIST_SHARE = 10  # percent of the room


def asked(leaf: Message | None, added: Sequence[ContextMessage]) -> str:
    """The newest question: that of a draft, else the one that is being answered."""
    drafted = added[0].text if added and added[0].role == "user" else None
    return drafted or (leaf.text if leaf is not None else "")


def beside(files: ProjectFiles, made: Documents, *, room: int, question: str) -> Block | None:
    """L, None when every file is inline. `room` as for `project_files`; `question`: to search for, empty for a model
    that can search by itself."""
    if not files.by_search:
        return None
    listing = _listing(files, made.tokenizer, max(0, room) * LIST_SHARE // 100)
    found = _found(files, made, question, files.line - files.inline_tokens) if question else ""
    text = "\n\n".join([f"{FOUND}\n{listing}", found]) if found else f"{BY_SEARCH}\n{listing}"
    return Block(text, made.tokenizer.count(text))


def _listing(files: ProjectFiles, tokenizer: Tokenizer, most: int) -> str:
    """A line for each file, the first ones while they take at most `most` tokens."""
    lines: list[str] = []
    for file in files.by_search:
        line = f"- {file.title} (id {file.id}, {file.tokens or 0} tokens)"
        most -= tokenizer.count(f"{line}\n")
        if most < 0 and lines:
            return "\n".join([*lines, f"- and {len(files.by_search) - len(lines)} more files"])
        lines.append(line)
    return "\n".join(lines)


def _found(files: ProjectFiles, made: Documents, question: str, most: int) -> str:
    """The best passages that together take at most `most` tokens, as documents; empty when there are none."""
    rows = File.objects.filter(pk__in=[UUID(file.id) for file in files.by_search], searchable=True)
    kept: dict[UUID, list[Hit]] = {}
    for hit in search_many(queries=[question], files=rows, limit=HITS):
        tried = {**kept, hit.file: [*kept.get(hit.file, ()), hit]}
        # Numbers are given to what is sent only, so here they are tried on a copy.
        if made.tokenizer.count(_rendered(tried, Numbers(made.numbers.known))) <= most:
            kept = tried
    made.titles |= {str(pk): hits[0].name for pk, hits in kept.items()}
    return _rendered(kept, made.numbers) if kept else ""


def _rendered(found: Mapping[UUID, Sequence[Hit]], numbers: Numbers) -> str:
    return documents_text([passages(pk, hits) for pk, hits in found.items()], numbers)
