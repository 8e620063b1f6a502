"""Find the bytes of a conversation's files in the zip of its export, as ChatGPT's exports have them."""

import zipfile
from base64 import b64encode
from bisect import bisect_left

from chat.conversations.importing.reading import ImportedConversation, ImportedFile
from chat.conversations.importing.stream import ZIP_ERRORS

MAX_PICTURE_BYTES = 13_000_000  # of all files of one conversation; further files are imported by name only
_MIN_KEY_LENGTH = 8  # characters; a shorter id could be the beginning of another file's name


class ArchiveFiles:
    """The files in the zip of an export. A file's name begins with the file's id in the conversations."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._members = {each.filename.rpartition("/")[2]: each for each in archive.infolist()}
        self._names = sorted(self._members)

    def add_to(self, conversation: ImportedConversation) -> None:
        """Set `data` of the conversation's files whose bytes are in the zip."""
        left = MAX_PICTURE_BYTES
        for message in conversation.messages:
            for file in message.files:
                if len(file.key) >= _MIN_KEY_LENGTH and not file.text and not file.data:
                    left -= self._read(file, left)

    def _read(self, file: ImportedFile, left: int) -> int:
        """Set `data` if the file is here and has `left` bytes at most. Return the number of its bytes."""
        place = bisect_left(self._names, file.key)
        name = self._names[place] if place < len(self._names) else ""
        if not name.startswith(file.key) or self._members[name].file_size > left:
            return 0
        try:
            with self._archive.open(self._members[name]) as member:
                content = member.read(left + 1)
        except ZIP_ERRORS:
            return 0
        if not content or len(content) > left:
            return 0
        file.data = b64encode(content).decode()
        suffix = name.rpartition(".")[2] if "." in name else ""
        if suffix and "." not in file.name:
            file.name = f"{file.name}.{suffix}"
        return len(content)
