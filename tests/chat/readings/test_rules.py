"""The reading of a text part by part: cutting, folding, the most calls, and the coverage."""

from itertools import pairwise

import pytest

from chat.readings.asking import number_passages
from chat.readings.planning import (
    MARK_TOKENS,
    MAX_PASSAGES,
    Budget,
    Gap,
    PartCoverage,
    Passage,
    budget_for,
    compute_coverage,
    divide_into_passages,
    find_middle,
    group_into_parts,
    group_notes,
    passage_numbers,
    passage_span,
    plan_calls,
    uncited_numbers,
)
from core.errors import ProductError
from core.sentences import NO_SENTENCE, Sentence
from llm.models import Model, Provider

BUDGET = Budget(part=100, findings=10, fold=60, folded=20, notes=60, answer=30, thinking=5, overhead=7)


def model(window: int, **fields: object) -> Model:
    return Model(name="m", context_window=window, provider=Provider(name="p"), **fields)


def passages(*sizes: int, headings: str = "") -> list[Passage]:
    named = headings or "a" * len(sizes)
    return [Passage((place + 1) * 10, size, named[place]) for place, size in enumerate(sizes)]


def test_passages_hold_every_character_once_and_have_numbers() -> None:
    passages_ = divide_into_passages([([(0, 10, 50, "A"), (8, 18, 50, "B"), (20, 25, 50, "")], 30)])
    assert [(each.end, each.tokens - MARK_TOKENS) for each in passages_] == [(10, 50), (18, 40), (30, 50)]
    ends = [each.end for each in passages_]
    assert [passage_span(ends, number) for number in (1, 2, 3)] == [(0, 10), (10, 18), (18, 30)]
    assert (list(passage_numbers(ends, 0, 30)), list(passage_numbers(ends, 10, 18))) == ([1, 2, 3], [2])
    assert number_passages("0123456789abcdefghABCDEFGHIJKL", 10, 30, ends) == "[2]\nabcdefgh\n\n[3]\nABCDEFGHIJKL"
    many = divide_into_passages([([(end - 1, end, 1, "") for end in range(1, 25_001)], 25_000)])
    assert len(many) <= MAX_PASSAGES and many[-1].end == 25_000 and many[0].end == 3
    assert divide_into_passages([([], 0)]) == []


def test_the_passages_of_several_files_stand_one_behind_the_other_and_no_part_has_two_files() -> None:
    passages_ = divide_into_passages([([(0, 10, 50, ""), (10, 18, 40, "")], 20), ([(0, 5, 7, "")], 5)])
    assert [(each.end, each.file) for each in passages_] == [(10, 0), (20, 0), (25, 1)]
    assert group_into_parts(passages_, 1_000) == [(0, 2), (2, 3)]
    many = [([(end - 1, end, 1, "") for end in range(1, 8_001)], 8_000), ([(0, 3, 1, "")], 3)]
    assert len(divide_into_passages(many)) == 8_001 and len(divide_into_passages([*many, *many])) <= MAX_PASSAGES


def test_parts_are_as_full_as_the_room_and_end_before_a_heading() -> None:
    assert group_into_parts(passages(40, 40, 40), 100) == [(0, 2), (2, 3)]
    assert group_into_parts(passages(30, 30, 30, 30, headings="aabb"), 100) == [(0, 2), (2, 4)]
    assert group_into_parts(passages(10, 30, 30, 30, headings="abbb"), 100) == [
        (0, 4)
    ]  # a heading that comes too early
    assert group_into_parts(passages(500, 10), 100) == [(0, 1), (1, 2)]
    parts = group_into_parts(passages(*[37] * 50), 100)
    assert parts[0][0] == 0 and parts[-1][1] == 50 and all(a[1] == b[0] for a, b in pairwise(parts))


def test_what_is_folded_together_fits() -> None:
    assert group_notes([30, 30, 30], 60) == [(0, 2), (2, 3)]
    assert group_notes([100, 1], 60) == [(0, 1), (1, 2)]
    assert group_notes([], 60) == []


def test_the_plan_is_the_most_that_it_takes() -> None:
    small = plan_calls([80, 90], [], BUDGET)
    assert (small.parts, small.folds, small.calls) == (2, 0, 3)
    assert small.usage.input == 80 + 90 + 2 * 7 + 2 * 15 + 7
    assert small.usage.output == 2 * 15 + 35
    large = plan_calls([100] * 9, [], BUDGET)  # 9 × 15 become 2 × 25 and 15, and these 25 and 15
    assert (large.folds, large.calls) == (3, 13)
    assert plan_calls([], [20, 20], BUDGET).calls == 1


def test_a_budget_leaves_room_for_text_or_says_so() -> None:
    large = budget_for(model(128_000), 400, 20)
    assert (large.part, large.findings, large.answer) == (16_000, 1_000, 4_000)
    small = budget_for(model(4_000), 400, 20)
    assert small.part + small.overhead + small.findings + small.thinking <= 3_600
    assert small.fold >= 2 * (small.folded + small.thinking)
    assert budget_for(model(4_000, token_ratio=1.5, ratio_samples=9), 200, 20).part < small.part
    assert budget_for(model(128_000, max_output=500), 400, 20).findings == 500
    with pytest.raises(ProductError, match="reading_window_too_small"):
        budget_for(model(2_000), 400, 1_000)


def test_a_part_is_divided_at_the_end_of_a_passage() -> None:
    assert find_middle([10, 20, 30, 40], 0, 40) == 20
    assert find_middle([10, 20, 30, 40], 10, 30) == 20
    assert find_middle([10, 20, 30, 40], 10, 20) is None


def test_what_was_not_read_is_named_with_its_pages_and_why() -> None:
    parts = [
        _part(0, 40, read=True),
        _part(40, 60, read=False),
        _part(60, 80, read=False),
        _part(80, 100, read=True),
    ]
    spans = [(0, 50), (50, 70), (70, 100)]
    coverage = compute_coverage(parts, spans, "stopped", Sentence("Stopped."))
    assert (coverage.percent, coverage.missing) == (60, [Gap(40, 80, 1, 3, "stopped", Sentence("Stopped."))])
    apart = compute_coverage(
        [parts[1], _part(60, 80, read=False, code="x", why=Sentence("X."))], [], "stopped", Sentence("Stopped.")
    )
    assert [(each.start, each.code, each.first_page) for each in apart.missing] == [(40, "stopped", 0), (60, "x", 0)]
    almost = compute_coverage(
        [_part(0, 9_999, read=True), _part(9_999, 10_000, read=False)], [], "stopped", NO_SENTENCE
    )
    assert almost.percent == 99
    assert compute_coverage([_part(0, 5, read=True)], [], "", NO_SENTENCE).percent == 100


def _part(start: int, end: int, *, read: bool, code: str = "", why: Sentence = NO_SENTENCE) -> PartCoverage:
    return PartCoverage(start, end, read, code, why)


def test_what_a_fold_leaves_out_is_known_by_its_numbers() -> None:
    assert uncited_numbers(["One [1], two [2][3].", "Three [3, 4]."], "All of it [1][4].", 9) == [2, 3]
    assert uncited_numbers(["No such passage [12]."], "", 9) == []
