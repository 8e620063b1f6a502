import math
import random
import string
from collections import Counter

import numpy as np
import pytest
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import User
from files.index import feedback, ranking
from files.index.embedders import active_embedder, embed
from files.index.language import detect_configuration
from files.index.search import ChunkHit, search, search_many
from files.models import Chunk, File
from tests.files.collections import indexed, new_owner

pytestmark = pytest.mark.django_db

NAMES = "anchor barrel candle dagger engine falcon garden hammer island jacket kettle ladder mirror needle orchid"
WORDS = NAMES.split()


@pytest.fixture
def owner(db: None) -> User:
    return new_owner()


def of(*files: File) -> QuerySet[File]:
    return File.objects.filter(pk__in=[file.pk for file in files])


def marked(hit: ChunkHit) -> list[str]:
    return [hit.text[start:end] for start, end in hit.highlights]


def random_text(source: random.Random, length: int = 12) -> str:
    return " ".join(source.choices(WORDS, weights=range(len(WORDS), 0, -1), k=length))


def reference_bm25(texts: dict[int, str], query: str, language: str) -> dict[int, float]:
    """BM25 in plain Python: Robertson and Zaragoza with k1 1.5 and b 0.75, and ln(1 + (N - n + 0.5) / (n + 0.5)).

    A word counts by the square root of how often the query says it."""

    def lexemes(text: str) -> Counter[str]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT lexeme, cardinality(positions) FROM unnest(to_tsvector(%s::regconfig, %s))", [language, text]
            )
            return Counter(dict(cursor.fetchall()))

    bags = {key: lexemes(text) for key, text in texts.items()}
    average = sum(bag.total() for bag in bags.values()) / len(bags)
    scores = dict.fromkeys(bags, 0.0)
    for word, times in lexemes(query).items():
        holding = sum(1 for bag in bags.values() if bag[word])
        idf = math.log(1 + (len(bags) - holding + 0.5) / (holding + 0.5))
        for key, bag in bags.items():
            norm = 1.5 * (0.25 + 0.75 * bag.total() / average)
            scores[key] += math.sqrt(times) * idf * bag[word] * 2.5 / (bag[word] + norm)
    return scores


@pytest.mark.parametrize(
    "query", ["orchids", "anchors in the garden", "ladder needle mirrors falcon engine", "a mirror, mirrors or ladders"]
)
def test_bm25_is_that_of_the_textbook_over_the_visible_chunks_alone(owner: User, query: str) -> None:
    source = random.Random(7)
    prose = "It was said that the {} of the house are where they have always been, and that is all we know about it."
    files = [
        indexed(owner, [prose.format(random_text(source, source.randint(2, 60))) for _ in range(100)]) for _ in range(3)
    ]
    assert {file.language for file in files} == {"english"}
    visible = of(*files[:2])
    prepared = ranking.prepare_search(visible, [query])
    scores = ranking.bm25(visible, prepared.queries[0], prepared.collection)
    texts = {chunk.pk: chunk.searched for chunk in Chunk.objects.filter(file__in=visible).select_related("file")}
    assert len(texts) == 200
    for chunk, score in reference_bm25(texts, query, "english").items():
        assert scores.for_chunks([chunk])[0] == pytest.approx(score)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 8), min_size=3, max_size=3),
    visible=st.sets(st.integers(0, 2)),
    query=st.lists(st.sampled_from([*WORDS, "unknown"]), min_size=1, max_size=4).map(" ".join),
    limit=st.integers(1, 20),
    seed=st.integers(0, 1_000),
)
def test_only_visible_files_are_found_and_never_fewer_than_there_are(
    owner: User, sizes: list[int], visible: set[int], query: str, limit: int, seed: int
) -> None:
    source = random.Random(seed)
    files = [indexed(owner, [random_text(source) for _ in range(size)]) for size in sizes]
    seen = [files[number] for number in visible]
    hits = search(query=query, files=of(*seen), limit=limit)
    assert {hit.file for hit in hits} <= {file.pk for file in seen}
    assert len(hits) == len({hit.chunk for hit in hits}) == min(limit, sum(sizes[number] for number in visible))
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_what_others_have_does_not_change_a_score(owner: User) -> None:
    source = random.Random(3)
    mine = indexed(owner, [random_text(source) for _ in range(20)])
    before = search(query="orchid needle", files=of(mine))
    indexed(new_owner(), ["orchid needle " * 5] * 50)
    assert search(query="orchid needle", files=of(mine)) == before


def test_the_index_of_vectors_finds_as_much_as_comparing_all(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(5)
    files = [indexed(owner, [random_text(source, 30) for _ in range(60)]) for _ in range(4)]
    visible = of(*files[2:])
    embedder = active_embedder()
    vector = embed(embedder, ["a falcon on an island"])[0]
    assert vector is not None
    exact = ranking.nearest(visible, embedder, vector, count=20, visible=120)
    monkeypatch.setattr(ranking, "MAX_EXACT_CHUNKS", 0)
    assert len(exact.keys() & ranking.nearest(visible, embedder, vector, count=20, visible=120).keys()) >= 18
    assert len(ranking.nearest(visible, embedder, vector, count=100, visible=120)) == 100
    assert len(ranking.nearest(visible, embedder, vector, count=200, visible=120)) == 120
    assert len(search(query="falcon", files=visible, limit=100)) == 100


@pytest.mark.parametrize(
    ("language", "text", "query", "form"),
    [
        ("english", "The children were running through the garden when it began to rain.", "runs", "running"),
        ("german", "Die Häuser an der Straße wurden nach dem Krieg wieder aufgebaut.", "Haus", "Häuser"),
        ("french", "Les chevaux couraient dans la prairie pendant que les enfants jouaient.", "jouer", "jouaient"),
        ("spanish", "Los trabajadores cantaban mientras construían la casa de sus padres.", "cantar", "cantaban"),
        ("russian", "Старые книги лежали на полках в тёмной комнате у реки.", "книга", "книги"),
        ("simple", "Lớp biên trên một tấm phẳng trở nên rối khi số Reynolds đủ lớn.", "reynolds", "Reynolds"),
        (
            "simple",
            "当雷诺数足够大时，平板上的边界层变为湍流。这是重要结果，工程师必须考虑。",
            "边界层",
            "边界层",
        ),
        (
            "simple",
            "レイノルズ数が十分に大きいとき、平板上の境界層は乱流になる。重要な結果である。",
            "境界層",
            "境界層",
        ),
        (
            "simple",
            "def running_total(rows):\n    return sum(row['amount'] for row in rows)",
            "running total",
            "running_total",
        ),
    ],
)
def test_words_are_found_in_their_language_and_marked_as_they_stand(
    owner: User, language: str, text: str, query: str, form: str
) -> None:
    others = [random_text(random.Random(n), 20) for n in range(5)]
    file = indexed(owner, [text])
    assert file.language == language
    best = search(query=query, files=of(file, indexed(owner, others)))[0]
    assert best.text == text
    assert form in marked(best)


def test_each_file_is_searched_in_its_own_language_by_one_query(owner: User) -> None:
    english = indexed(owner, ["The engines were tested for many hours before the ship left the harbour."])
    code = indexed(owner, ["engines = load(path); run(engines[0]); assert engines[0].state == 1 # {ok: [1, 2]}"])
    assert (english.language, code.language) == ("english", "simple")
    hits = search(query="engines", files=of(english, code))
    assert [marked(hit)[:1] for hit in sorted(hits, key=lambda hit: hit.name)] == [["engines"], ["engines"]]


def test_stop_words_do_not_lift_the_few_texts_that_have_no_language(owner: User) -> None:
    prose = [
        f"The {first} was left beside the {second} because they had no room for it in the house."
        for first in WORDS
        for second in WORDS
    ]
    english = indexed(owner, prose)
    code = indexed(owner, ["what = is + the + of; if (what[0] == the[1]) { of[2] = is; } # what is the of 1234567890"])
    assert (english.language, code.language) == ("english", "simple")
    best = search(query="what is the use of the kettle", files=of(english, code))[0]
    assert "kettle" in best.text


@pytest.mark.parametrize("query", ["", " ", "\0", "!:*&|", "\N{ZERO WIDTH JOINER}", "😀", "()<->", "'"])
def test_a_query_without_a_word_finds_nothing(owner: User, query: str) -> None:
    assert search(query=query, files=of(indexed(owner, ["Some text about a garden."]))) == []


@pytest.mark.parametrize(
    "query",
    [
        "the of and",
        "garden & !tree | (",
        "garden:* <-> 'x",
        "gar\0den",
        "garden \ud800",
        "x" * 10_000,
        "garden " * 1_500,
        " ".join(string.ascii_letters),
        "日",
        "%s %(x)s {} \\",
        "https://example.com/garden?a=1 me@example.com",
    ],
)
def test_any_other_text_is_a_query(owner: User, query: str) -> None:
    file = indexed(owner, ["Some text about a garden.", "And more of it."])
    assert len(search(query=query, files=of(file))) == 2


def test_a_hit_says_where_its_text_stands(owner: User) -> None:
    file = indexed(owner, ["First a page about nothing.", "Then the garden, gardens and gardening."], name="a <b>.txt")
    hit = search(query="garden", files=of(file))[0]
    first = len("First a page about nothing.")
    assert (hit.file, hit.name, hit.ordinal, hit.page) == (file.pk, "a <b>.txt", 1, 2)
    assert (hit.start, hit.end) == (first, first + len(hit.text))
    assert marked(hit) == ["garden", "gardens", "gardening"]


@pytest.mark.parametrize(
    ("text", "query", "mark"),
    [
        ("The works is certified to ISO-9001.", "9001", "9001"),
        ("The works is certified to ISO-9001.", "ISO9001", "ISO-9001"),
        ("See RFC2616 for the rules of the wire.", "RFC 2616", "RFC2616"),
        ("Invoice inv/2024/0017 is paid.", "0017", "0017"),
        ("Take 500mg twice a day.", "500 mg", "500mg"),
        ("Take 500 mg twice a day.", "500mg", "500"),
        ("The sum is 1.234,56 euros.", "1,234.56", "1.234,56"),
        ("Write to jane.doe@example.org about it.", "jane doe", "jane"),
        ("A Haftpflicht\u00adversicherung pays for it.", "Haftpflichtversicherung", "Haftpflicht\u00adversicherung"),
        ("Nguyễn Thị Hương signed for both of them.", "Nguyen Thi Huong", "Nguyễn"),
        ("The plant in Łódź makes lamps.", "Lodz", "Łódź"),
        ("The plant in Lodz makes lamps.", "Łódź", "Lodz"),
        ("Malmö lies opposite Copenhagen.", "Malmo", "Malmö"),
        ("The e-mail came at noon.", "email", "e-mail"),
        ("Ask AmericanExpress for a card.", "american express", "AmericanExpress"),
    ],
)
def test_identifiers_and_names_are_found_however_they_are_written(
    owner: User, text: str, query: str, mark: str
) -> None:
    others = [random_text(random.Random(n), 20) for n in range(30)]
    best = search(query=query, files=of(indexed(owner, [*others, text])))[0]
    assert best.text == text
    assert mark in marked(best)


@pytest.mark.parametrize("query", ["american express 2022", "harbour report", "AMERICANEXPRESS"])
def test_the_name_of_a_file_is_searched_word_by_word(owner: User, query: str) -> None:
    named = indexed(owner, ["Nothing of note happened."], name="AMERICANEXPRESS_2022_HarbourReport.pdf")
    others = [indexed(owner, [random_text(random.Random(n), 20)], name=f"other-{n}.txt") for n in range(20)]
    hit = search(query=query, files=of(named, *others))[0]
    assert (hit.file, hit.named) == (named.pk, True)


GERMAN = (
    "Der Garten liegt hinter dem Haus am Fluss. Wie in jedem Jahr blühen dort die Apfelbäume, und die Kinder spielen "
    "nach der Schule unter ihnen, bis es dunkel wird und sie nach Hause gehen müssen."
)


def test_a_file_in_another_language_does_not_change_the_order(owner: User) -> None:
    prose = [
        f"The {first} was left beside the {second} because they had no room for it in the house."
        for first in WORDS
        for second in WORDS[:5]
    ]
    code = indexed(owner, ["how = many[0]; this(total) = {region: [1, 2]}; # how many nations control this region"])
    english = indexed(owner, prose)
    query = "How many of them left a kettle in this house?"
    before = [hit.text for hit in search(query=query, files=of(english, code))]
    german = indexed(owner, [GERMAN])
    assert (english.language, code.language, german.language) == ("english", "simple", "german")
    after = search(query=query, files=of(english, code, german))
    assert [hit.text for hit in after] == before
    prepared = ranking.prepare_search(of(english, code, german), [query])
    assert not {"how", "de how", "this", "de this"}.intersection(prepared.queries[0].keys)


def test_each_passage_is_searched_in_its_own_language(owner: User) -> None:
    english = "The engines were tested for many hours before the ship left the harbour, and nobody was on board. "
    file = indexed(owner, [english * 6, GERMAN, "| 1,234 | (567) |\n" * 20])
    assert [chunk.language for chunk in file.chunks.all()] == ["english", "german", "english"]
    assert file.languages == {"english": 2, "german": 1}
    assert search(query="engine", files=of(file))[0].text == english * 6
    assert search(query="Apfelbaum", files=of(file))[0].text == GERMAN


def test_a_report_full_of_figures_is_no_code() -> None:
    rows = "| Purchases of property, plant and equipment | $ (1,577) | 12.5 % |\n| The total of assets | 36,500 |\n"
    assert detect_configuration(rows * 30) == "english"


def test_passages_of_the_same_content_come_once(owner: User) -> None:
    texts = ["A kettle boils.", "A ladder leans.", "An orchid grows."]
    first, second = indexed(owner, texts), indexed(new_owner(), texts)
    File.objects.filter(pk=second.pk).update(sha256=first.sha256)
    hits = search(query="kettle", files=of(first, second))
    assert sorted(hit.text for hit in hits) == sorted(texts)
    other = indexed(owner, ["A kettle boils."])
    assert len(search(query="kettle", files=of(first, second, other))) == 4


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("يقع البيت القديم على ضفة النهر وتحيط به حديقة كبيرة.", "البيت القديم"),
        ("บ้านหลังเก่าอยู่ริมแม่น้ำและมีสวนขนาดใหญ่ล้อมรอบ", "บ้านหลังเก่า"),
        ("पुराना घर नदी के किनारे है और उसके चारों ओर एक बड़ा बगीचा है।", "पुराना घर"),
    ],
)
def test_the_bundled_embedder_is_not_used_for_scripts_that_it_does_not_know(owner: User, text: str, query: str) -> None:
    file = indexed(owner, [text, "A house by the river."])
    assert [chunk.embedding is None for chunk in file.chunks.all()] == [True, False]
    [hit] = search(query=query, files=of(file))
    assert (hit.text, hit.cosine) == (text, 0)


def test_addresses_are_found_and_marked_whole(owner: User) -> None:
    file = indexed(owner, ["Write to Jo@Example.com or not.", "Nothing here."])
    hit = search(query="jo@example.com", files=of(file))[0]
    assert marked(hit) == ["Jo@Example.com"]


def test_ligatures_and_wide_letters_are_read_as_plain_ones(owner: User) -> None:
    file = indexed(owner, ["An eﬃcient oﬃce.", "Nothing here."])
    assert marked(search(query="efficient", files=of(file))[0]) == ["eﬃcient"]


def test_several_phrasings_are_searched_as_one(owner: User) -> None:
    file = indexed(owner, ["A kettle boils.", "A ladder leans.", "An orchid grows.", "A jacket hangs."])
    hits = search_many(queries=["kettle", "", "orchid"], files=of(file), limit=2).hits
    assert {(hit.text, *marked(hit)) for hit in hits} == {
        ("A kettle boils.", "kettle"),
        ("An orchid grows.", "orchid"),
    }


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_finds_nothing(owner: User, limit: int) -> None:
    assert search(query="kettle", files=of(indexed(owner, ["A kettle boils."])), limit=limit) == []


def test_no_visible_file_finds_nothing(owner: User) -> None:
    indexed(owner, ["A kettle boils."])
    assert search(query="kettle", files=File.objects.none()) == []


@pytest.mark.parametrize(
    "text",
    ["", "short", "1,2,3\n" * 500, "{" * 5_000, "xyzzy " * 3, '{"a": [1, 2, 3], "b": {"c": "d"}}' * 40],
)
def test_what_is_in_no_language_is_read_as_it_stands(text: str) -> None:
    assert detect_configuration(text) == "simple"


@pytest.mark.parametrize(
    ("collection", "pays"),
    [
        (ranking.VisibleCollection(1_000, 90_000, 900, {"english": 1_000}), True),
        (ranking.VisibleCollection(240, 30_000, 240, {"english": 240}), False),  # few texts
        (ranking.VisibleCollection(1_000, 90_000, 900, {"english": 800, "german": 200}), False),
        (ranking.VisibleCollection(1_000, 90_000, 900, {"simple": 1_000}), False),  # Thai, say
        (ranking.VisibleCollection(9_727, 3_000_000, 36, {"english": 9_727}), False),  # long reports
    ],
)
def test_feedback_is_for_many_short_texts_in_english(collection: ranking.VisibleCollection, *, pays: bool) -> None:
    assert feedback.is_worthwhile(collection) is pays


def test_what_the_best_chunks_say_besides_is_asked_for_as_well(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(3)
    others = [random_text(source, 40) for _ in range(150)]
    both = [f"zorblat quimple {random_text(source, 20)}" for _ in range(5)]
    alone = f"quimple {random_text(source, 20)}"
    file = indexed(owner, [*others, *both, alone])
    monkeypatch.setattr(feedback, "LANGUAGE", file.language)
    monkeypatch.setattr(feedback, "MIN_CHUNKS", 100)
    monkeypatch.setattr(feedback, "MAX_CHUNKS", 200)
    counts = {hit.chunk: 1.0 for hit in search(query="zorblat", files=of(file), limit=5)}
    prepared = ranking.prepare_search(of(file), ["zorblat"])
    [query], best = prepared.queries, feedback.feedback_chunks(counts)
    entries = ranking.load_postings(of(file), query.keys, prepared.collection)
    added = feedback.expand_query(query, entries, counts, best, of(file), prepared.collection)
    [quimple] = ranking.load_postings(of(file), {"quimple": 1}, prepared.collection).values()
    assert [at for at, each in added.entries.items() if np.array_equal(each, quimple)], "it is a word that they add"
    assert added.weights.keys() == added.entries.keys() and 1 < len(added.weights) <= feedback.ADDED_WORDS + 1
    texts = [hit.text for hit in search(query="zorblat", files=of(file), limit=20)]
    assert set(texts[:5]) == set(both) and alone in texts


def test_few_chunks_are_ranked_by_the_query_alone(owner: User) -> None:
    file = indexed(owner, ["zorblat quimple", "quimple", "a third text of some words"])
    search(query="zorblat", files=of(file))  # the process knows the embedders and the words from now on
    with CaptureQueriesContext(connection) as queries:
        assert search(query="zorblat", files=of(file))[0].text == "zorblat quimple"
    assert len(queries) == 4  # what is asked of what, postings, the nearest, the rows
