"""Decrypt files of Office and LibreOffice, and members of ZIP archives, with a password, in memory."""

import base64
import hashlib
import hmac
import io
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import msoffcrypto
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.decrepit.ciphers.algorithms import Blowfish
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC, ECB
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from msoffcrypto.exceptions import DecryptionError, FileFormatError, InvalidKeyError, ParseError

from readers.formats.archive import ENCRYPTED_PACKAGE, MANIFEST, MAX_UNPACKED_BYTES, Archive, Element
from readers.formats.result import ReaderError

_ZIP = b"PK\x03\x04"
_STRONG_ENCRYPTION_FLAG = 0x40  # flag of members with PKWARE's own encryption
# WinZip's AES: its compression method, and the extra field of a member with its parameters.
_AES = 99
_AES_EXTRA_FIELD = 0x9901
_AES_ROUNDS = 1_000
# Bytes of the verifier before the encrypted content, of the MAC after it, and of a block.
_VERIFIER_BYTES = 2
_MAC_BYTES = 10
_BLOCK_BYTES = 16
_BLOCKS_PER_CALL = 1 << 16  # blocks encrypted in one call
# Limits for deriving the keys of one file. Each allows about 10 s of work, so that a hostile file blocks no reader.
# Office uses 100,000 rounds. LibreOffice uses 100,000 rounds for each part, or 3 rounds over 64 MiB for the whole file.
_MAX_ROUNDS = 20_000_000
_MAX_OFFICE_ROUNDS = 5_000_000
_MAX_MEMORY = 256 * 1024  # KiB for one key
_MAX_WORK = 8 * 1024 * 1024  # KiB times rounds, summed over all keys
_CHECKSUM_BYTES = 1_024  # leading bytes that a “1K” checksum of LibreOffice covers


def decrypt_document(path: Path, password: str) -> bytes:
    """Return the decrypted content of a file of Office or LibreOffice.

    Raises `wrong_password`, `protected`, `damaged`, `bomb`.
    """
    with path.open("rb") as source:
        is_zip = source.read(len(_ZIP)) == _ZIP
    if not is_zip:
        return _decrypt_office(path, password)
    with _wrap_library_errors():
        return _decrypt_opendocument(Archive(path), password)


def decrypt_member(path: Path, archive: Archive, name: str, password: str) -> bytes:
    """Return the decrypted content of a member in `archive.locked`. Raises the errors of `decrypt_document`."""
    info = archive.locked[name]
    keys = [password.encode(), *([password.encode("cp1252", "ignore")] if not password.isascii() else [])]
    if info.flag_bits & _STRONG_ENCRYPTION_FLAG:
        raise ReaderError("protected")
    with _wrap_library_errors():
        if info.compress_type == _AES:
            return _decrypt_winzip(_encrypted_content(path, info), info, keys)
        return _decrypt_pkzip(archive, info, keys)


@contextmanager
def _wrap_library_errors() -> Iterator[None]:
    """Raise `ReaderError` for the errors of libraries."""
    try:
        yield
    except (struct.error, zlib.error, zipfile.BadZipFile, EOFError, ValueError, OverflowError) as error:
        raise ReaderError("damaged") from error
    except NotImplementedError as error:  # a compression that Python does not support
        raise ReaderError("protected") from error


def _decrypt_office(path: Path, password: str) -> bytes:
    """Return the content of a file that Office has encrypted (MS-OFFCRYPTO)."""
    out = io.BytesIO()
    # The library creates a temporary file, and a sandboxed process may not write files.
    tempfile.TemporaryFile = io.BytesIO  # type: ignore[assignment]
    with path.open("rb") as source:
        try:
            document = msoffcrypto.OfficeFile(source)
            if not document.is_encrypted():
                return path.read_bytes()
            if getattr(document, "info", {}).get("spinValue", 0) > _MAX_OFFICE_ROUNDS:
                raise ReaderError("protected")
            document.load_key(password=password)
            document.decrypt(out)
        except InvalidKeyError as error:
            raise ReaderError("wrong_password") from error
        except (DecryptionError, ValueError) as error:  # a cipher or a key size that the library does not know
            raise ReaderError("protected") from error
        except (FileFormatError, ParseError) as error:
            raise ReaderError("damaged") from error
    return out.getvalue()


def _rebuild(members: Iterator[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def _decrypt_pkzip(archive: Archive, member: zipfile.ZipInfo, keys: list[bytes]) -> bytes:
    """Decrypt with ZIP's old method. A check byte detects most wrong passwords, and the checksum detects the rest."""
    for key in keys:
        try:
            with archive.open(member.filename, key) as opened:
                return opened.read()
        except (RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            if isinstance(error, NotImplementedError):
                raise
    raise ReaderError("wrong_password")


def _encrypted_content(path: Path, member: zipfile.ZipInfo) -> bytes:
    """Return the encrypted content of a member, which follows its local header."""
    with path.open("rb") as source:
        source.seek(member.header_offset + 26)
        source.seek(sum(struct.unpack("<2H", source.read(4))), io.SEEK_CUR)
        return source.read(member.compress_size)


def _decrypt_winzip(packed: bytes, member: zipfile.ZipInfo, keys: list[bytes]) -> bytes:
    """Decrypt AES in counter mode with an HMAC (WinZip's AE-1, AE-2). The counter begins at 1, lowest byte first."""
    strength, method = _aes_parameters(member.extra)
    key_size = 8 * (strength + 1)
    salt_size = 4 * (strength + 1)
    salt = packed[:salt_size]
    verifier = packed[salt_size : salt_size + _VERIFIER_BYTES]
    body = packed[salt_size + _VERIFIER_BYTES : -_MAC_BYTES]
    mac = packed[-_MAC_BYTES:]
    for key in keys:
        derived = hashlib.pbkdf2_hmac("sha1", key, salt, _AES_ROUNDS, 2 * key_size + _VERIFIER_BYTES)
        if derived[2 * key_size :] == verifier:
            break
    else:
        raise ReaderError("wrong_password")
    if not hmac.compare_digest(hmac.digest(derived[key_size : 2 * key_size], body, "sha1")[:_MAC_BYTES], mac):
        raise ReaderError("damaged")
    plain = _counter_mode(derived[:key_size], body)
    return plain if method == zipfile.ZIP_STORED else _decompress(plain, method, member.file_size)


def _aes_parameters(extra: bytes) -> tuple[int, int]:
    """Return the strength, 1 to 3, and the compression method of a member."""
    offset = 0
    while offset + 4 <= len(extra):
        field_id, size = struct.unpack_from("<2H", extra, offset)
        if field_id == _AES_EXTRA_FIELD and size >= 7:
            strength, method = struct.unpack_from("<BH", extra, offset + 8)
            if 1 <= strength <= 3:
                return strength, method
        offset += 4 + size
    raise ReaderError("damaged")


def _counter_mode(key: bytes, body: bytes) -> bytes:
    encryptor = Cipher(AES(key), ECB()).encryptor()  # noqa: S305  the library's counter mode is big-endian
    parts = []
    for first in range(0, len(body), _BLOCKS_PER_CALL * _BLOCK_BYTES):
        part = body[first : first + _BLOCKS_PER_CALL * _BLOCK_BYTES]
        first_counter = first // _BLOCK_BYTES + 1
        counters = (
            counter.to_bytes(_BLOCK_BYTES, "little")
            for counter in range(first_counter, first_counter + -(-len(part) // _BLOCK_BYTES))
        )
        stream = encryptor.update(b"".join(counters))[: len(part)]
        parts.append((int.from_bytes(part) ^ int.from_bytes(stream)).to_bytes(len(part)))
    return b"".join(parts)


def _decompress(packed: bytes, method: int, size: int) -> bytes:
    """Return the unpacked content: at most `size` bytes, as the directory states, and at most `MAX_UNPACKED_BYTES`."""
    if method != zipfile.ZIP_DEFLATED:
        raise ReaderError("protected")
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, min(size, MAX_UNPACKED_BYTES) or 1)[:size]


def _decrypt_opendocument(archive: Archive, password: str) -> bytes:
    """Decrypt a document whose members (OpenDocument 1.3, part 2, section 3.4) or whole package (1.5) are encrypted."""
    entries = {_get(entry, "full-path"): entry for entry in archive.tree(MANIFEST).iterfind("{*}file-entry")}
    locked = {name: data for name, each in entries.items() if (data := each.find("{*}encryption-data")) is not None}
    if ENCRYPTED_PACKAGE in locked and ENCRYPTED_PACKAGE in archive.names:
        _require_bounded_work([locked[ENCRYPTED_PACKAGE]])
        with archive.open(ENCRYPTED_PACKAGE) as opened:
            package = _decrypt_part(opened.read(), locked[ENCRYPTED_PACKAGE], password)
        return package if package.startswith(_ZIP) else _decompress(package, zipfile.ZIP_DEFLATED, MAX_UNPACKED_BYTES)
    return _rebuild(_decrypt_parts(archive, entries, locked, password))


def _decrypt_parts(
    archive: Archive, entries: dict[str, Element], locked: dict[str, Element], password: str
) -> Iterator[tuple[str, bytes]]:
    """Yield the members that readers need: texts, styles and the content of charts."""
    needed = {name: data for name, data in locked.items() if name.endswith(("content.xml", "styles.xml"))}
    _require_bounded_work(needed.values())
    for name in sorted(archive.names - {MANIFEST}):
        with archive.open(name) as opened:
            if name not in locked:
                yield name, opened.read()
            elif name in needed:
                size = _number(entries[name], "size")
                yield (
                    name,
                    _decompress(_decrypt_part(opened.read(), locked[name], password), zipfile.ZIP_DEFLATED, size),
                )


def _decrypt_part(content: bytes, data: Element, password: str) -> bytes:
    """Return the plain content without the padding of the last block. Raises `wrong_password`."""
    algorithm, vector = _algorithm(data)
    key = _key(data, password)
    if algorithm.endswith("aes256-gcm"):
        try:  # the initialisation vector also precedes the encrypted content
            return AESGCM(key).decrypt(vector, content.removeprefix(vector), None)
        except InvalidTag as error:
            raise ReaderError("wrong_password") from error
    if algorithm.endswith(("aes128-cbc", "aes192-cbc", "aes256-cbc")):
        decryptor = Cipher(AES(key), CBC(vector)).decryptor()
        plain = decryptor.update(content) + decryptor.finalize()
        plain = plain[: len(plain) - plain[-1]] if plain and plain[-1] <= _BLOCK_BYTES else plain
    elif "lowfish" in algorithm:
        decryptor = Cipher(Blowfish(key), CFB(vector)).decryptor()
        plain = decryptor.update(content) + decryptor.finalize()
    else:
        raise ReaderError("protected")
    checksum_type = _get(data, "checksum-type").lower()
    expected = base64.b64decode(_get(data, "checksum"))
    checked = plain[:_CHECKSUM_BYTES] if checksum_type.endswith("1k") else plain
    if expected and hashlib.new("sha256" if "sha256" in checksum_type else "sha1", checked).digest() != expected:
        raise ReaderError("wrong_password")
    return plain


def _algorithm(data: Element) -> tuple[str, bytes]:
    algorithm = _child(data, "algorithm")
    return _get(algorithm, "algorithm-name"), base64.b64decode(_get(algorithm, "initialisation-vector"))


def _key(data: Element, password: str) -> bytes:
    start = data.find("{*}start-key-generation")
    digest = "sha256" if start is not None and "sha256" in _get(start, "start-key-generation-name") else "sha1"
    derivation = _child(data, "key-derivation")
    name = _get(derivation, "key-derivation-name")
    salt = base64.b64decode(_get(derivation, "salt"))
    size = min(_number(derivation, "key-size", 16), 64)
    start_key = hashlib.new(digest, password.encode()).digest()
    if name == "PBKDF2":
        return _derive_pbkdf2(start_key, salt, _number(derivation, "iteration-count", 1_024), size)
    if not name.endswith("argon2id"):  # a PGP key, which no password opens
        raise ReaderError("protected")
    memory, lanes, rounds = _argon2_parameters(derivation)
    return Argon2id(salt=salt, length=size, iterations=rounds, lanes=lanes, memory_cost=memory).derive(start_key)


def _require_bounded_work(locked: Iterable[Element]) -> None:
    """Raise `protected` if deriving the keys of these parts takes far more work than any known program asks for."""
    rounds = work = 0
    for data in locked:
        derivation = _child(data, "key-derivation")
        if _get(derivation, "key-derivation-name") == "PBKDF2":
            rounds += _number(derivation, "iteration-count", 1_024)
        else:
            memory, _, passes = _argon2_parameters(derivation)
            work += memory * passes
            if memory > _MAX_MEMORY:
                raise ReaderError("protected")
    if rounds > _MAX_ROUNDS or work > _MAX_WORK:
        raise ReaderError("protected")


def _argon2_parameters(derivation: Element) -> tuple[int, int, int]:
    """Return the parameters of Argon2: KiB of memory, lanes, rounds."""
    return (
        _number(derivation, "argon2-memory"),
        _number(derivation, "argon2-lanes", 1),
        _number(derivation, "argon2-iterations", 1),
    )


@lru_cache(maxsize=8)
def _derive_pbkdf2(start_key: bytes, salt: bytes, rounds: int, size: int) -> bytes:
    """Return a derived key. Cached: some programs use one salt for all members, and a key takes 50 ms."""
    return hashlib.pbkdf2_hmac("sha1", start_key, salt, max(rounds, 1), size)


def _child(element: Element, name: str) -> Element:
    child = element.find(f"{{*}}{name}")
    if child is None:
        raise ReaderError("damaged")
    return child


def _get(element: Element, name: str) -> str:
    """Return an attribute by its name without namespace."""
    return next((str(value) for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def _number(element: Element, name: str, default: int = 0) -> int:
    value = _get(element, name)
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else default
