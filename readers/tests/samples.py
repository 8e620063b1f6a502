"""Small files of every kind, made here."""

import base64
import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from typing import Any

import docx
import openpyxl
import pptx
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from msoffcrypto.format.ooxml import OOXMLFile
from PIL import Image

LAUGHS = '<!DOCTYPE lolz [<!ENTITY a0 "lol">{}]>'.format(
    "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
)


def pdf(pages: Sequence[str], *, count: int | None = None, trailer: str = "", font: str = "", drawn: str = "") -> bytes:
    """Return a PDF whose pages have these lines of text. Lines that begin with `# ` are large.

    `count`: the claimed number of pages. `font`: the font's dictionary. `drawn`: further operators on each page.
    """
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages) if count is None else count} >>",
        f"<< /Type /Font {font or '/Subtype /Type1'} /BaseFont /Helvetica >>",
    ]
    for number, page in enumerate(pages):
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842]"
            f" /Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>"
        )
        shown = (
            f"/F1 18 Tf ({line[2:]}) Tj /F1 10 Tf" if line[:2] == "# " else f"({line}) Tj" for line in page.split("\n")
        )
        lines = "".join(f"{line} T*\n" for line in shown if line != "() Tj")
        content = f"BT /F1 10 Tf 12 TL 40 800 Td\n{lines}ET" if lines else ""
        content += drawn
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    out = io.BytesIO(b"")
    out.write(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1"))
    start = out.tell()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    out.write(f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n".encode())
    out.write(f"<< /Size {size} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


def unmapped_pdf() -> bytes:
    """Return a PDF whose text only its own font maps to letters."""
    system = "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >>"
    inner = f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Own {system} >>"
    signs = "".join(f"\\000\\{ord(sign):03o}" for sign in "9ROXPHV")
    return pdf([signs] * 2, font=f"/Subtype /Type0 /Encoding /Identity-H /DescendantFonts [{inner}]")


def form() -> bytes:
    """A PDF with a field that is filled in, a box that is checked, one that is not, and three remarks, one hidden."""
    place = "/Rect [40 700 200 720] /F {flags} /P 4 0 R"
    shown, hidden = place.format(flags=4), place.format(flags=6)
    box = "/Type /Annot /Subtype /Widget /FT /Btn /AP << /N << /Yes 6 0 R /Off 6 0 R >> >>"
    annotations = (
        f"<< /Type /Annot /Subtype /Widget /FT /Tx /T (f1) /TU (Full name) /V (Ada Lovelace) {shown} >>",
        f"<< {box} /T (agree) /AS /Yes /V /Yes {shown} >> << {box} /T (mail) /AS /Off /V /Off {shown} >>",
        f"<< /Type /Annot /Subtype /FreeText /DA (/F1 9 Tf) /Contents (Ask her again) {shown} >>",
        f"<< /Type /Annot /Subtype /Highlight /Contents (Doubtful) {shown} >>",
        f"<< /Type /Annot /Subtype /Text /Contents (Not for others) {hidden} >>",
    )
    document = pdf(["The form"])
    page = document.replace(b"/Contents 5 0 R", f"/Contents 5 0 R /Annots [{' '.join(annotations)}]".encode())
    return page.replace(b"/Pages 2 0 R", b"/Pages 2 0 R /AcroForm << /Fields [] /DA (/F1 9 Tf) >>")


def protected_pdf() -> bytes:
    secret = "<" + "ab" * 32 + ">"
    encrypt = f"/Encrypt << /Filter /Standard /V 1 /R 2 /O {secret} /U {secret} /P -4 >> /ID [{secret} {secret}]"
    return pdf(["Secret"], trailer=encrypt)


def page_of_text(number: int, lines: int = 45) -> str:
    words = "the harbour master counts every ship that comes in and writes its name"
    return "\n".join(f"Page {number}, line {line}: {words}." for line in range(lines))


def locked(document: bytes, password: str) -> bytes:
    """An Office file that opens with this password."""
    out = io.BytesIO()
    OOXMLFile(io.BytesIO(document)).encrypt(password, out)
    return out.getvalue()


def word(paragraphs: Sequence[str], rows: Sequence[Sequence[str]] = ()) -> bytes:
    document = docx.Document()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    if rows:
        table = document.add_table(len(rows), len(rows[0]))
        for row, cells in zip(table.rows, rows, strict=True):
            for cell, text in zip(row.cells, cells, strict=True):
                cell.text = text
    return _saved(document)


WORD = (
    '<w:{root} xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    ' xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    ' xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">{content}</w:{root}>'
)


def word_of(body: str, **parts: str) -> bytes:
    """A Word document with this body as XML, and with these parts, such as `numbering` and `footnotes`."""
    document = with_member(
        word([]), "word/document.xml", WORD.format(root="document", content=f"<w:body>{body}</w:body>")
    )
    for name, content in parts.items():
        document = with_member(document, f"word/{name}.xml", WORD.format(root=name.rstrip("1"), content=content))
    return document


def paragraph(text: str, style: str = "", number: tuple[int, int] | None = None) -> str:
    """As XML, in a style, or as (list, level) of a numbering; `text` may hold XML after its first run."""
    numbered = f'<w:numPr><w:ilvl w:val="{number[1]}"/><w:numId w:val="{number[0]}"/></w:numPr>' if number else ""
    properties = f'<w:pPr>{f"""<w:pStyle w:val="{style}"/>""" if style else ""}{numbered}</w:pPr>'
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def slides(texts: Sequence[str], notes: str = "") -> bytes:
    presentation = pptx.Presentation()
    for text in texts:
        slide = presentation.slides.add_slide(presentation.slide_layouts[5])
        if slide.shapes.title is not None:
            slide.shapes.title.text = text
        if notes and slide.notes_slide.notes_text_frame is not None:
            slide.notes_slide.notes_text_frame.text = notes
    return _saved(presentation)


def workbook(sheets: Mapping[str, Sequence[Sequence[Any]]]) -> bytes:
    book = openpyxl.Workbook(write_only=True)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(list(row))
    return _saved(book)


def strict(document: bytes) -> bytes:
    """The same Office file with the names of the strict form of the standard."""
    with zipfile.ZipFile(io.BytesIO(document)) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    old, new = rb"http://schemas\.openxmlformats\.org/(\w+)/2006/", rb"http://purl.oclc.org/ooxml/\1/"
    return archive({name: re.sub(old, new, content) for name, content in members.items()})


OPEN = (
    '<office:document-content xmlns:office="office" xmlns:text="text" xmlns:table="table" xmlns:draw="draw"'
    ' xmlns:style="style" xmlns:presentation="presentation" xmlns:xlink="xlink" xmlns:dc="dc">{content}'
    "</office:document-content>"
)


def open_document(kind: str, body: str, styles: str = "", **members: str) -> bytes:
    """An OpenDocument `text`, `spreadsheet` or `presentation` with this body and these automatic styles, as XML."""
    content = f"<office:automatic-styles>{styles}</office:automatic-styles><office:body>{body}</office:body>"
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": OPEN.format(content=content),
            "META-INF/manifest.xml": "<manifest/>",
            **{name.replace("_", "/", 1) + ".xml": OPEN.format(content=text) for name, text in members.items()},
        }
    )


LOCKED = """<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
 xmlns:loext="urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0"><manifest:file-entry
 manifest:full-path="{name}" manifest:size="{size}"><manifest:encryption-data {checksum}><manifest:algorithm
 manifest:algorithm-name="{how}" manifest:initialisation-vector="{vector}"/><manifest:start-key-generation
 manifest:start-key-generation-name="http://www.w3.org/2000/09/xmldsig#sha256"/><manifest:key-derivation
 manifest:key-size="32" manifest:salt="{salt}" {key}/></manifest:encryption-data></manifest:file-entry>
</manifest:manifest>"""


def locked_open_document(document: bytes, password: str, *, whole: bool) -> bytes:
    """As LibreOffice writes it: the `whole` since 24.8, before its members one by one (here the content alone)."""
    secret, salt = hashlib.sha256(password.encode()).digest(), b"s" * 16
    with zipfile.ZipFile(io.BytesIO(document)) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    if whole:
        name, how, vector, checksum = "encrypted-package", "http://www.w3.org/2009/xmlenc11#aes256-gcm", b"v" * 12, ""
        key = Argon2id(salt=salt, length=32, iterations=1, lanes=4, memory_cost=64).derive(secret)
        attributes = 'loext:argon2-iterations="1" loext:argon2-memory="64" loext:argon2-lanes="4"'
        attributes += (
            ' manifest:key-derivation-name="urn:org:documentfoundation:names:experimental:office:manifest:argon2id"'
        )
        size, content = len(document), vector + AESGCM(key).encrypt(vector, document, None)
        members = {"mimetype": members["mimetype"]}
    else:
        name, how, vector = "content.xml", "http://www.w3.org/2001/04/xmlenc#aes256-cbc", b"v" * 16
        packed = zlib.compress(members[name], wbits=-15)
        digest = _base64(hashlib.sha256(packed[:1_024]).digest())
        checksum = f'manifest:checksum="{digest}" manifest:checksum-type="x#sha256-1k"'
        key = hashlib.pbkdf2_hmac("sha1", secret, salt, 1_000, 32)
        attributes = 'manifest:key-derivation-name="PBKDF2" manifest:iteration-count="1000"'
        left = 16 - len(packed) % 16
        encryptor = Cipher(AES(key), CBC(vector)).encryptor()
        size, content = len(members[name]), encryptor.update(packed + bytes([left] * left))
    manifest = LOCKED.format(
        name=name, size=size, checksum=checksum, how=how, vector=_base64(vector), salt=_base64(salt), key=attributes
    )
    return archive({**members, name: content, "META-INF/manifest.xml": manifest})


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def book(chapters: Sequence[str]) -> bytes:
    """An EPUB."""
    items = "".join(
        f'<item id="c{n}" href="text/c%20{n}.xhtml" media-type="application/xhtml+xml"/>' for n in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    members = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
        "OPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf">'
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
    }
    for number, chapter in enumerate(chapters):
        members[f"OPS/text/c {number}.xhtml"] = f"<!DOCTYPE html><html><body>{chapter}</body></html>"
    return archive(members)


def mail() -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ada <ada@example.org>", "bob@example.org", "Grüße"
    message.set_content("The plain words.")
    message.add_alternative("<p>The <b>HTML</b> words.</p>", subtype="html")
    message.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf", filename="bill.pdf")
    return message.as_bytes()


def image(kind: str, width: int = 40, height: int = 30) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(out, kind)
    return out.getvalue()


def archive(members: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return out.getvalue()


def with_member(document: bytes, name: str, content: str | bytes) -> bytes:
    """The same archive with one member replaced."""
    with zipfile.ZipFile(io.BytesIO(document)) as opened:
        members: dict[str, str | bytes] = {member: opened.read(member) for member in opened.namelist()}
    return archive({**members, name: content})


def without_member(document: bytes, name: str) -> bytes:
    """The same archive without one member."""
    with zipfile.ZipFile(io.BytesIO(document)) as opened:
        return archive({member: opened.read(member) for member in opened.namelist() if member != name})


def member(document: bytes, name: str) -> str:
    """The text of one member of an archive."""
    with zipfile.ZipFile(io.BytesIO(document)) as opened:
        return opened.read(name).decode()


def bomb(megabytes: int = 1_000) -> bytes:
    """Return a DOCX with a part that unpacks to this size. The file has a thousandth of it."""
    out = io.BytesIO(word(["Hello"]))
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as opened, opened.open("word/media/image.png", "w") as member:
        for _ in range(megabytes):
            member.write(bytes(1_000_000))
    return out.getvalue()


def lying_bomb() -> bytes:
    """Return a DOCX whose directory claims a short text that unpacks to 300 MB."""
    content = b'<w:document xmlns:w="w"><w:p>' + b"<w:t>aaaaaaaa</w:t>" * 16_000_000
    packed = bytearray(with_member(word([]), "word/document.xml", content))
    real, stated = len(content).to_bytes(4, "little"), (1_000).to_bytes(4, "little")
    return bytes(packed.replace(real, stated))


def _saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()
