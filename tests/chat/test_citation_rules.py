"""Whether a passage carries a sentence: the rule alone, on sentences of our own."""

import pytest

from chat.citations.claims import claims
from chat.citations.differences import DoubtKind
from chat.citations.support import compare, sentences
from chat.rendering.references import Source
from tests.chat.claims import ALTERED, TRUE, Pair


def reasons(pair: Pair) -> list[DoubtKind]:
    verdict = compare(pair.sentence, pair.passage)
    return [reason for reason, _ in verdict.reasons] if verdict else []


def test_what_was_altered_is_found_and_what_is_said_in_other_words_is_left_alone() -> None:
    missed = [pair.sentence for pair in ALTERED if not reasons(pair)]
    accused = [pair.sentence for pair in TRUE if reasons(pair)]
    assert len(missed) <= 0.1 * len(ALTERED), missed
    assert len(accused) <= 0.07 * len(TRUE), accused


LEASE = (
    "Mr. Adams and the Harbour Company signed the lease on 3 May 2021. The rent is 1,250 euros a month. Pets are not "
    "allowed."
)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The rent is 1250 euros a month.", []),
        ("The rent is 1.250 euros a month.", []),
        ("The rent is 1,350 euros a month.", [DoubtKind.NUMBER]),
        ("The lease was signed on 3 June 2021.", [DoubtKind.NUMBER]),
        ("Mr. Adams and the Castle Company signed the lease in 2021.", [DoubtKind.NAME]),
        ("Pets are allowed.", [DoubtKind.NEGATION]),
        ("Pets.", []),
        ("The rent is 1,250 dollars a month.", [DoubtKind.NUMBER]),
        ("The lease says that pets are allowed there.", [DoubtKind.NEGATION]),
        ("The dog barked at the postman in the garden all night.", [DoubtKind.ABSENT]),
    ],
)
def test_each_kind_of_reason(sentence: str, expected: list[DoubtKind]) -> None:
    assert reasons(Pair(sentence, LEASE)) == expected


GLOSSARY = (
    "A persona is the configuration for an assistant: its prompt, its tools and its model. A workspace holds personas, "
    "projects and the people of one company. Workers read jobs from the queue and write results to the database."
)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The configuration for an assistant is called a persona.", []),
        ("A persona configures an assistant, with its prompt, tools and model.", []),
        ("A workspace contains the personas, projects and people of a company.", []),
        ("Jobs are read from the queue by workers, which write the results into the database.", []),
        ("A workspace is the configuration for an assistant.", [DoubtKind.WORD]),
        ("A persona is the password for an assistant.", [DoubtKind.WORD]),
        ("An assistant is the configuration for a persona.", [DoubtKind.ORDER]),
        ("Workers read jobs from the database and write results to the queue.", [DoubtKind.ORDER]),
    ],
)
def test_a_word_that_replaces_another_needs_a_reason(sentence: str, expected: list[DoubtKind]) -> None:
    assert reasons(Pair(sentence, GLOSSARY)) == expected


@pytest.mark.parametrize(
    ("sentence", "passage", "expected"),
    [
        (
            "Die Miete ist vom Mieter bis zum 3. Werktag zu zahlen.",
            "Der Mieter zahlt die Miete bis zum dritten Werktag.",
            [],
        ),
        ("Der Mieter haftet für Schäden.", "Der Vermieter haftet für Schäden.", [DoubtKind.WORD]),
        ("Um neun Uhr öffnet die Bibliothek.", "Die Bibliothek öffnet um neun Uhr.", []),
        ("Les travaux dureront 10 mois.", "Les travaux dureront dix mois.", []),
        ("Hợp đồng có thời hạn 2 năm.", "Hợp đồng có thời hạn hai năm và không tự động gia hạn.", []),
        ("员工每年有15天带薪假期。", "员工每年有十五天带薪假期。", []),
        ("员工每年有二十天带薪假期。", "员工每年有十五天带薪假期。", [DoubtKind.NUMBER]),
    ],
)
def test_other_languages_are_compared_by_their_words_and_numbers(
    sentence: str, passage: str, expected: list[DoubtKind]
) -> None:
    assert reasons(Pair(sentence, passage)) == expected


CONTRACT = (
    "The licence runs for two years from 1 May. The library opens at 14:30 and lends no more than six books at once. A "
    "third of the readers are students. The licensee shall not copy the catalogue before the fee of 1,200 euros has "
    "been paid. Mr Osei signed for the town, and Ms Park signed for the university. The museum kept a Norwegian map."
)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The licence runs for 24 months from 1 May.", []),
        ("The licence runs for 24 weeks from 1 May.", [DoubtKind.NUMBER]),
        ("The library opens at 2:30 p.m.", []),
        ("The library opens at 2:30 a.m.", [DoubtKind.NUMBER]),
        ("The library lends at most six books at once.", []),
        ("The library lends at least six books at once.", [DoubtKind.OPPOSITE]),
        ("33% of the readers are students.", []),
        ("The catalogue may be copied only after the fee of €1,200 has been paid.", []),
        (
            "The licensee may copy the catalogue before the fee of 1,200 euros has been paid.",
            [DoubtKind.NEGATION, DoubtKind.WORD],
        ),
        ("A map of Norway was kept by the museum.", []),
    ],
)
def test_one_value_has_many_spellings(sentence: str, expected: list[DoubtKind]) -> None:
    assert set(reasons(Pair(sentence, CONTRACT))) == set(expected)


@pytest.mark.parametrize(
    ("sentence", "passage", "expected"),
    [
        ("Gulls must avoid the net.", "Gulls must not touch the net.", []),
        ("The play did not sell well in the first week.", "The play sold poorly in the first week.", []),
        ("The play sold well in the first week.", "The play sold poorly in the first week.", [DoubtKind.OPPOSITE]),
        ("Tickets may be returned until they are stamped.", "Tickets may be returned if they are not stamped.", []),
        ("Cars may not stop here.", "Cars must not stop here.", []),
        ("Cars may stop here on Sundays.", "Cars must stop here on Sundays.", [DoubtKind.WORD]),
    ],
)
def test_a_negation_may_be_expressed_by_another_word(sentence: str, passage: str, expected: list[DoubtKind]) -> None:
    assert reasons(Pair(sentence, passage)) == expected


@pytest.mark.parametrize(
    ("sentence", "passage", "expected"),
    [
        ("Sand is heavier than ash.", "Ash is lighter than sand.", []),
        ("Ash is heavier than sand.", "Ash is lighter than sand.", [DoubtKind.OPPOSITE]),
        ("Sand is lighter than ash.", "Ash is lighter than sand.", [DoubtKind.ORDER]),
        ("The fee rose to 43 francs from 41 francs.", "The fee rose from 41 francs to 43 francs.", []),
        ("The fee rose from 43 francs to 41 francs.", "The fee rose from 41 francs to 43 francs.", [DoubtKind.ORDER]),
        ("In May the old bridge was sold to the town.", "The old bridge was sold to the town in May.", []),
        (
            "Repairs up to 100 euros are paid by the landlord, and all others by the tenant.",
            "Repairs up to 100 euros are paid by the tenant, and all others by the landlord.",
            [DoubtKind.ORDER],
        ),
        (
            "Reparaturen bis 100 Euro zahlt der Vermieter, alle anderen der Mieter.",
            "Reparaturen bis 100 Euro zahlt der Mieter, alle anderen der Vermieter.",
            [DoubtKind.ORDER],
        ),
        (
            "Kim reported that the tests had finished, and Lee doubted that the date could be met.",
            "Lee reported that the tests had finished two days early. Kim doubted that the date could be met.",
            [DoubtKind.WORD],
        ),
    ],
)
def test_words_that_moved_with_their_preposition_are_not_exchanged(
    sentence: str, passage: str, expected: list[DoubtKind]
) -> None:
    assert sorted(set(reasons(Pair(sentence, passage)))) == expected


@pytest.mark.parametrize(
    ("sentence", "passage", "expected"),
    [
        ("Ines sends the parcel to you.", "You send the parcel to Ines.", [DoubtKind.ORDER]),
        ("You send Ines the parcel.", "You send the parcel to Ines.", []),
        (
            "Owners may read the file in the archive.",
            "Owners may read the file in the office, and tenants may read the file in the archive.",
            [DoubtKind.ORDER],
        ),
        (
            "Tenants may read the file in the archive.",
            "Owners may read the file in the office, and tenants may read the file in the archive.",
            [],
        ),
        (
            "Only the street counts against the limit.",
            "Only the town counts against the limit, the street is not counted.",
            [DoubtKind.WORD],
        ),
        ("The pump stops when the guard logs in.", "The pump stops when the guard logs out.", [DoubtKind.OPPOSITE]),
        ("The pump is in daily use.", "The pump is no longer in daily use.", [DoubtKind.NEGATION]),
        ("The pump is not in daily use.", "The pump is no longer in daily use.", []),
        ("The card costs at least $30 a year.", "The card costs up to $30 a year.", [DoubtKind.OPPOSITE]),
        ("The card covers half of the fee.", "The card covers a maximum of 50% of the fee.", []),
        ("The door closes before the last train.", "The door closes with the last train.", [DoubtKind.WORD]),
        ("The tower has a wooden roof above the hall.", "The tower has an iron roof above the hall.", [DoubtKind.WORD]),
        ("Only the owner may sell the field.", "The field may not be sold, except by the owner.", []),
        ("Mr Lind paid for the dinner.", "Ms Okoro paid for the dinner.", [DoubtKind.NAME]),
    ],
)
def test_a_word_in_the_place_of_one_other_needs_a_reason(
    sentence: str, passage: str, expected: list[DoubtKind]
) -> None:
    assert sorted(set(reasons(Pair(sentence, passage)))) == expected


@pytest.mark.parametrize(
    ("sentence", "passage", "expected"),
    [
        ("L'abonné peut refuser ses factures.", "Les abonnés peuvent rejeter leurs factures.", []),
        ("Le pont est ouvert aux camions.", "Le pont n'est plus ouvert aux camions.", [DoubtKind.NEGATION]),
        (
            "Seul le gardien peut ouvrir la grille.",
            "La grille ne peut être ouverte que par le gardien.",
            [],
        ),
        ("Die Kirche entstand im 17. Jahrhundert.", "Die Kirche entstand im siebzehnten Jahrhundert.", []),
        ("Der Zaun hat eine Höhe von bis zu 2 m.", "Der Zaun ist bis zu 2 Meter hoch.", []),
    ],
)
def test_french_and_german_have_their_own_function_words(
    sentence: str, passage: str, expected: list[DoubtKind]
) -> None:
    assert reasons(Pair(sentence, passage)) == expected


def test_names_the_other_way_round_are_seen_and_the_passive_is_not_accused() -> None:
    passage = "In the final match Norway beat Sweden by 24 points to 21, to the surprise of the crowd."
    assert reasons(Pair("In the final match Sweden beat Norway by 24 points to 21.", passage)) == [DoubtKind.ORDER]
    passage = "In the final match Norway defeated Sweden, to the surprise of the crowd."
    assert (
        reasons(Pair("In the final match Sweden was defeated by Norway, to the surprise of the crowd.", passage)) == []
    )


def test_sentences_end_where_people_would_end_them() -> None:
    text = "Dr. Miller paid 3.5 euros, i.e. too much. It rained! (Not for long.)\n\n- one\n- two\n| a |\n雨です。明日。"
    assert sentences(text) == [
        "Dr. Miller paid 3.5 euros, i.e. too much.",
        "It rained!",
        "(Not for long.)",
        "- one",
        "- two",
        "| a |",
        "雨です。",
        "明日。",
    ]


def test_each_citation_stands_for_what_leads_up_to_it() -> None:
    sources = {number: Source(number, "x", "/x") for number in (1, 2, 3)}
    text = (
        "The *fee* is 500 euros a year [1], while the deposit is two months of rent [2]. According to [3], `pets` are "
        "allowed in the garden. Nothing here. It was raised twice. [1, 2]\n\n```\nnot a [1] citation of a text\n```\n"
    )
    cited = [(claim.citation, claim.numbers, claim.sentence) for claim in claims(text, sources)]
    assert cited == [
        (0, (1,), "The fee is 500 euros a year"),
        (1, (2,), "while the deposit is two months of rent."),
        (2, (3,), "According to, pets are allowed in the garden."),
        (3, (1, 2), "It was raised twice."),
    ]


def test_a_long_passage_without_sentences_is_compared_in_part() -> None:
    passage = "word " * 20_000 + "the fee is limited to 500 euros a year " + "word " * 1_000
    assert reasons(Pair("The fee is limited to 500 euros a year.", passage)) == []
    assert DoubtKind.NUMBER in reasons(Pair("The fee is limited to 900 euros a year.", passage))
