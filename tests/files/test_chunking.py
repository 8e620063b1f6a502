from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from files.index.chunking import LEAST_CHUNK_TOKENS, MAX_CHUNK_TOKENS, OVERLAP_TOKENS, ChunkSpan, chunk_spans
from llm import tokens

SENTENCES = [
    "The ship came in at dawn. ",
    "Nobody saw it! ",
    "Why?\n",
    "\n\n",
    "日本語の文です。",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "x" * 300,
    "\t",
    "Ω≈ç√ ",
]
texts = st.one_of(
    st.text(max_size=3_000),
    st.lists(st.sampled_from(SENTENCES), max_size=400).map("".join),
    st.builds(lambda word, times: word * times, st.text(min_size=1, max_size=8), st.integers(1, 4_000)),
)


@given(texts)
@settings(max_examples=60, deadline=None)
def test_chunks_cover_the_text_in_order_and_keep_to_their_size(text: str) -> None:
    chunks = list(chunk_spans(text))
    end = 0
    for piece, before in zip(chunks, [None, *chunks], strict=False):
        content = text[piece.start : piece.end]
        assert content == content.strip() != ""
        assert piece.tokens == tokens.count(content) <= MAX_CHUNK_TOKENS
        assert not text[end : piece.start].strip(), "nothing between two chunks is lost"
        if before:
            assert before.start < piece.start and before.end < piece.end
        end = piece.end
    assert not text[end:].strip()


def test_the_same_text_gives_the_same_chunks() -> None:
    text = "".join(f"Sentence {number} of the story. " for number in range(2_000))
    assert list(chunk_spans(text)) == list(chunk_spans(text))


def test_chunks_end_between_paragraphs_and_repeat_a_little() -> None:
    text = "\n\n".join(f"Paragraph {n}. " + "It has some words, and then some more. " * 8 for n in range(60))
    chunks = list(chunk_spans(text))
    assert len(chunks) > 8
    for piece, following in pairwise(chunks):
        assert text[piece.end : piece.end + 3].strip(" ").startswith("\n")
        assert piece.tokens >= LEAST_CHUNK_TOKENS
        overlap = text[following.start : piece.end]
        assert tokens.count(overlap) <= OVERLAP_TOKENS + 1


def test_a_heading_stays_with_what_stands_below_it() -> None:
    parts = (f"## Part {n}\n\n" + "It has some words, and then some more. " * (5 + n % 9) for n in range(60))
    text = "\n\n".join(parts)
    chunks = list(chunk_spans(text))
    assert len(chunks) > 6
    assert not any(text[piece.start : piece.end].rpartition("\n")[2].startswith("#") for piece in chunks)


def test_a_short_text_is_one_chunk_and_a_blank_one_none() -> None:
    assert list(chunk_spans(" Hello. ")) == [ChunkSpan(1, 7, 2)]
    assert list(chunk_spans("")) == list(chunk_spans(" \n\n ")) == []


def test_a_long_word_is_cut() -> None:
    text = "".join(chr(97 + (number * number) % 26) for number in range(20_000))
    chunks = list(chunk_spans(text))
    assert chunks[0].start == 0 and chunks[-1].end == len(text)
    assert all(after.start <= piece.end for piece, after in pairwise(chunks))


def test_each_chunk_knows_the_headings_above_it() -> None:
    prose = "It has some words, and then some more. " * 20
    rent = f"## Rent\n\n{prose}\n\n```\n# a remark\n```\n\n### When it is due ###\n\n{prose * 3}"
    text = f"# The lease\n\n{rent}\n\n## Repairs\n\n{prose * 3}"
    chunks = list(chunk_spans(text))
    at = {piece.heading: text[piece.start : piece.end].splitlines()[0] for piece in reversed(chunks)}
    assert at["The lease › Rent › When it is due"] == "### When it is due ###"
    assert at["The lease › Repairs"] == "## Repairs", "a chunk ends before a heading, and the next begins with it"
    assert "a remark" not in "".join(at)
    assert {piece.heading for piece in chunk_spans(text, media_type="text/x-python")} == {""}


def test_a_long_table_keeps_its_head() -> None:
    rows = "".join(f"| item {n} | {n * 7} | in the store |\n" for n in range(200))
    text = f"Stock:\n\n| Name | Number | Where |\n| --- | --- | --- |\n{rows}\nThat is all."
    first, *others = chunk_spans(text)
    assert first.table_head == "" and len(others) > 2
    assert {piece.table_head for piece in others} == {"| Name | Number | Where |\n| --- | --- | --- |"}
    sheet = "# Stock\nName\tNumber\n" + "".join(f"item {n}\t{n * 7}\n" for n in range(400))
    assert {piece.table_head for piece in list(chunk_spans(sheet))[1:]} == {"Name\tNumber"}
    values = "Name,Number\n" + "".join(f"item {n},{n * 7}\n" for n in range(400))
    assert {piece.table_head for piece in list(chunk_spans(values, media_type="text/csv"))[1:]} == {"Name,Number"}
