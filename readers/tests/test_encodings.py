"""Texts in the encodings of old programs, detected by their language, and files that are no text."""

import pytest

from readers.tests.reading import Read, read, refusal
from readers.text.encodings import decode, detect_encoding, is_text

__all__ = ["read"]

# Short, as a table saved by Excel is, in the code page of the language's Windows.
TEXTS = {
    "cp1252": (
        "Name;Straße;Ort\nMüller;Hauptstraße 3;Köln\nJürgen Groß;Am Bächle;Tübingen",
        "El año que viene será mejor para la señora Peña y los niños.",
        "Il venerdì sera è più tranquillo della città, perché non c'è nessuno.",
        "A votação e a informação não são publicadas até amanhã de manhã.",
        "Istuntokauden pöytäkirja hyväksytään tänään, mikäli siitä päätetään.",
        "Frågan är om det går att få svar på den här sidan före påsk.",
        "L’élève a reçu une très bonne note à l’école, où il était déjà.",
    ),
    "cp1250": (
        "Żółw idzie powoli przez łąkę, a źdźbło trawy się chwieje.",
        "Příliš žluťoučký kůň úpěl ďábelské ódy, když přišla zima.",
        "Az ősi magyar erdőben a tűz körül ülő vadászok történeteket meséltek.",
    ),
    "cp1254": ("Işık ile Gönül, İzmir'de güneşli bir günde çay içtiler ve şarkı söylediler.",),
    "cp1257": ("Lietuvių kalba yra viena seniausių gyvų kalbų, kurią žmonės šnekėjo dar žiloje senovėje.",),
    "cp1251": ("Съешь же ещё этих мягких французских булок, да выпей чаю. " * 3,),
    "cp866": ("Съешь же ещё этих мягких французских булок, да выпей чаю.",),
    "cp932": ("会議は金曜日の午後に行われます。資料は事前に配布されます。",),
    "big5": ("會議將於星期五下午舉行，資料會提前發放。",),
    "cp949": ("회의는 금요일 오후에 열립니다. 자료는 미리 배포됩니다.",),
    "cp1255": ("הישיבה תתקיים ביום שישי אחר הצהריים.",),
    "cp1253": ("Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, και η αλεπού πηδάει πάνω από τον σκύλο. " * 3,),
}


@pytest.mark.parametrize(("encoding", "text"), [(name, text) for name, texts in TEXTS.items() for text in texts])
def test_a_text_in_a_code_page_is_told_by_its_language(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding))[0] == text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be"])
def test_unicode_is_told_with_and_without_its_mark(encoding: str) -> None:
    data = "Grüße aus Köln, viel Spaß!\n".encode(encoding)
    assert is_text(data)
    assert decode(data)[0] == "Grüße aus Köln, viel Spaß!\n"


def test_one_damaged_character_does_not_turn_utf8_into_something_else() -> None:
    data = ("Grüße aus Köln. " * 30).encode() + b"\xff."
    assert detect_encoding(data) == "utf-8"


def test_html_and_xml_say_what_they_are_in() -> None:
    text = '<?xml version="1.0" encoding="ISO-8859-2"?><p>Źle, ą i š</p>'
    assert decode(text.encode("iso8859_2")) == (text, "iso8859_2")
    assert detect_encoding('<meta charset="iso-8859-1"><p>café</p>'.encode("cp1252")) == "cp1252"
    text = '<meta charset="shift_jis"><p>① 日本</p>'
    assert decode(text.encode("cp932")) == (text, "cp932")
    assert detect_encoding(b'<meta charset="no-such-thing"><p>caf\xe9 au lait, \xe7a va</p>') == "cp1252"


def test_a_few_control_characters_are_pasted_and_many_are_no_text(read: Read) -> None:
    assert read("words " * 200 + "\x02 more").text == "words " * 200 + " more"
    assert refusal(read, bytes(range(1, 32)) * 20).code == "unsupported"
    assert is_text(b"words " * 200 + b"\0")
    assert not is_text(b"words " * 200 + b"\0" * 4)


def test_the_encoding_is_told_and_another_can_be_asked_for(read: Read) -> None:
    text = "año y mañana, señora Peña"
    detected, chosen = read(text.encode("cp1252")), read(text.encode("cp1252"), "a.txt", "cp1250")
    assert (detected.text, detected.encoding) == (text, "cp1252")
    assert (chosen.text, chosen.encoding) == ("ańo y mańana, seńora Peńa", "cp1250")
    assert refusal(read, text, "a.txt", "rot13").code == "unknown_encoding"
