"""A low count is a suspicion at most, and a window is learnt from proof only: docs/develop/context.md."""

import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections

from accounts.models import User
from core.errors import ModelError, ProductError
from llm.learning import (
    Evidence,
    describe_window_source,
    forget_learnt,
    learn_image_limit,
    learn_refused_window,
    learn_served_window,
    names_window,
    record_calls,
    window_source,
)
from llm.model_facts import use_reported_values
from llm.models import Model, Provider
from llm.services import learn_ratio, upsert_model
from llm.truncation import (
    CallReported,
    ReportedCounts,
    Script,
    SentTokens,
    Truncation,
    TruncationSuspicion,
    detect_truncation,
    script_shares,
)
from llm.types.model_call import AllocatedWindow, Usage

CJK: Mapping[Script, float] = {"cjk": 1.0}


@pytest.fixture
def model(db: None) -> Model:
    provider = Provider.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9/v1")
    return upsert_model(provider=provider, name="m", window=131_072)


def seen(sent: SentTokens, usage: Usage, counts: ReportedCounts | None = None, **more: Any) -> object:
    return detect_truncation(counts or ReportedCounts(), sent, usage, **{"tokenizer_known": True, **more})


def call(counted: int, reported: int, cached: int = 0) -> CallReported:
    return CallReported(SentTokens(counted), Usage(reported, 1, cached))


def refusal(limit: int | None, requested: int | None = None, *, is_account_limit: bool = False) -> ModelError:
    error = ModelError("context_too_long", "Too long.", retryable=False, limit=limit)
    error.requested, error.is_account_limit = requested, is_account_limit
    return error


@pytest.mark.parametrize(
    ("sent", "usage", "suspected"),
    [
        (SentTokens(1_451), Usage(850, 1), True),
        (SentTokens(1_451), Usage(912, 1), False),  # 63 %
        (SentTokens(1_465), Usage(700, 1, 600), False),  # what was cached was read
        (SentTokens(1_465), Usage(700, 1, 1_000), False),  # also where it is more than the prompt
        (SentTokens(600), Usage(300, 1), True),
        (SentTokens(599), Usage(300, 1), False),  # 299 are missing
        (SentTokens(9_138), Usage(0, 1), False),  # it does not say
        (SentTokens(9_138), Usage(200, 1), False),  # nonsense
        (SentTokens(1_500, tools=4_500), Usage(1_400, 1), False),  # it does not write tools into the prompt
        (SentTokens(9_138), Usage(12_000, 1), False),
    ],
)
def test_a_count_below_three_fifths_is_a_suspicion(sent: SentTokens, usage: Usage, suspected: bool) -> None:
    expected = TruncationSuspicion(usage.input + usage.cached_input, sent.total) if suspected else None
    assert seen(sent, usage) == expected


def test_without_a_known_tokenizer_nothing_is_suspected() -> None:
    assert seen(SentTokens(9_138), Usage(3_000, 1), tokenizer_known=False) is None


def test_a_prompt_shorter_than_one_that_was_read_whole_is_not_suspected() -> None:
    counts = ReportedCounts().with_report(call(20_000, 19_800))
    assert seen(SentTokens(19_000), Usage(5_000, 1), counts) is None
    assert isinstance(seen(SentTokens(20_001), Usage(5_000, 1), counts), TruncationSuspicion)


def test_a_switch_of_the_language_is_no_truncation() -> None:
    """A vocabulary that needs half of our tokens for Chinese, after conversations in English, and back."""
    counts = ReportedCounts()
    for size in (1_000, 2_000, 3_000):
        counts = counts.with_report(call(size, size))
    chinese = SentTokens(6_000, scripts=CJK)
    for size in (1_000, 2_000):
        counts = counts.with_report(CallReported(SentTokens(size, scripts=CJK), Usage(round(size * 0.55), 1)))
    assert seen(chinese, Usage(3_300, 1), counts) is None
    assert isinstance(seen(chinese, Usage(1_900, 1), counts), TruncationSuspicion)
    english = SentTokens(6_000)
    assert seen(english, Usage(5_800, 1), counts) is None
    assert isinstance(seen(english, Usage(3_300, 1), counts), TruncationSuspicion)


def test_more_tokens_than_ours_are_never_expected() -> None:
    counts = ReportedCounts()
    for size in (2_000, 3_000, 4_000, 5_000, 6_000):
        counts = counts.with_report(call(size, size * 2))
    assert seen(SentTokens(9_000), Usage(8_900, 1), counts) is None


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Where is it warm in May, and why?", "latin"),
        ("Tiếng Việt có dấu — “đúng” không?", "latin"),
        ("这是中文的内容，请回答。", "cjk"),
        ("これは日本語です。", "cjk"),
        ("이것은 한국어입니다.", "cjk"),
        ("นี่คือภาษาไทย", "other"),
        ("😀😀😀😀", "other"),
        ("1234567890 987654321", "other"),
        ("", "latin"),
    ],
)
def test_each_text_has_its_script(text: str, script: str) -> None:
    shares = script_shares([text])
    assert max(shares, key=lambda name: shares[name]) == script
    assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("sent", "reported", "window", "proven"),
    [
        (9_000, 3_000, 6_000, True),
        (9_000, 8_700, 8_000, False),  # nothing is missing
        (9_000, 3_000, 32_000, None),  # a window with room for all is no reason to cut
        (3_463, 2_833, 3_000, True),
    ],
)
def test_the_servers_own_window_decides(sent: int, reported: int, window: int, proven: bool | None) -> None:
    truncation = seen(SentTokens(sent), Usage(reported, 1), allocated=AllocatedWindow("ollama", window))
    assert isinstance(truncation, Truncation) is bool(proven)


def test_a_thrifty_vocabulary_proves_nothing_even_where_our_count_is_above_the_window() -> None:
    """Qwen's count of plain Chinese is 0.82 of ours, so that a prompt may fit although we count more."""
    sent, allocated = SentTokens(3_463, scripts=CJK), AllocatedWindow("llama.cpp", 3_000)
    truncation = detect_truncation(ReportedCounts(), sent, Usage(2_833, 1), tokenizer_known=False, allocated=allocated)
    assert isinstance(truncation, TruncationSuspicion)


def test_three_growing_calls_with_the_same_count_prove_a_window(model: Model) -> None:
    record_calls(model, [call(5_000, 4_096), call(6_100, 4_090)])
    model.refresh_from_db()
    assert model.window == 131_072
    record_calls(model, [call(7_400, 4_096)])
    model.refresh_from_db()
    assert (model.window, window_source(model)) == (4_096, "counted")
    evidence = Evidence.from_json(model.window_evidence)
    assert evidence is not None and evidence.sent == (5_000, 6_100, 7_400) and evidence.limit == 4_096
    assert "4,096 tokens for prompts of 5,000, 6,100, 7,400" in describe_window_source(model)


@pytest.mark.parametrize(
    "calls",
    [
        [call(5_000, 4_096), call(6_100, 4_096)],
        [call(5_000, 4_096), call(5_500, 4_096), call(6_000, 4_096)],  # they grew too little
        [call(5_000, 4_096), call(6_100, 4_000), call(7_400, 4_096)],  # 2 % apart
        [call(5_000, 4_096), call(6_100, 4_096, 1_000), call(7_400, 4_096, 2_200)],  # what was cached was read
        [call(700, 700), call(1_400, 700), call(2_100, 700), call(2_800, 700)],  # no server has so small a window
        # Messages of 3,000 tokens each, of which the cache had all but the newest; then of many of them.
        [call(3_500, 3_500), call(6_500, 3_000), call(9_500, 3_000), call(12_500, 3_000)],
        [call(3_500 + 3_000 * number, 3_000) for number in range(12)],
        [call(3_500 + 4_200 * number, 3_000) for number in range(12)],  # it had the answers, too
        [call(100, 8_192), call(1_000, 8_192), call(9_000, 8_192)],  # the number is always the same
        [call(9_000, 9_000), call(10_000, 3_000), call(12_500, 3_000), call(16_000, 3_000)],  # 9,000 were read whole
        [call(5_000, 4_096), call(6_100, 4_096), call(7_000, 7_000), call(7_400, 4_096)],  # one was larger
        [call(1_000, 4_096), call(1_500, 4_096), call(2_000, 4_096)],  # nothing is missing
    ],
)
def test_nothing_less_proves_one(model: Model, calls: list[CallReported]) -> None:
    record_calls(model, calls)
    model.refresh_from_db()
    assert (model.learnt_window, model.window) == (None, 131_072)


def odd_servers() -> Iterator[tuple[str, CallReported]]:
    """A thousand reports, as careless servers make them; never three alike while the prompts grow."""
    chance = random.Random(26)
    whole = 0
    for number in range(1_000):
        counted = round(chance.choice((300, 1_500, 6_000, 20_000, 90_000)) * chance.uniform(0.6, 1.5))
        fresh = round(counted * chance.uniform(0.01, 0.6)) + number
        reported = {
            "only what is new": Usage(fresh, 1),
            "what is cached, apart": Usage(fresh, 1, counted - fresh),
            "more cached than sent": Usage(fresh, 1, counted * 2),
            "characters divided by four": Usage(round(counted * chance.uniform(0.4, 0.7)), 1),
            "without the tools": Usage(round(counted * 0.8), 1),
            "a thrifty vocabulary": Usage(round(counted * chance.uniform(0.55, 0.9)), 1),
            "nothing": Usage(0, 0),
            "nonsense": Usage(chance.choice((1, 7, 200, 2**31 - 1)), 1),
            "whole": Usage(counted, 1),
        }
        what = chance.choice(list(reported))
        whole = max(whole, counted if what == "whole" else 0)
        script: Any = chance.choice(({"latin": 1.0}, CJK, {"other": 1.0}, {"latin": 0.5, "cjk": 0.5}))
        yield what, CallReported(SentTokens(counted, chance.choice((0, 400, 2_500)), scripts=script), reported[what])


def test_a_window_never_shrinks_from_counts_alone(model: Model) -> None:
    for what, reported in odd_servers():
        record_calls(model, [reported])
        row = Model.objects.get(pk=model.pk)
        assert (row.learnt_window, row.window) == (None, 131_072), what
    assert Model.objects.get(pk=model.pk).reported_counts["largest_whole"] > 80_000


@pytest.mark.parametrize("seed", range(20))
def test_a_window_that_counts_prove_is_repeated_by_three_of_them(seed: int) -> None:
    """Reports are random around a few equal ones. A proven window was reported three times, for growing prompts."""
    chance, counts, reports = random.Random(seed), ReportedCounts(), list[CallReported]()
    for _ in range(50):
        counted = chance.randint(300, 12_000)
        reported = chance.choice((2_100, 4_096, 4_100, min(counted, 8_192), chance.randint(1, counted)))
        reports.append(call(counted, reported))
        counts = counts.with_report(reports[-1])
        proven = counts.proven_window()
        if proven is not None:
            window, proof = proven
            assert len(proof) >= 3 and all(window * 0.98 <= each <= window for _, each in proof)
            assert all(after >= 1.2 * before for (before, _), (after, _) in pairwise(proof))


@pytest.mark.parametrize(
    ("limit", "requested", "counted", "answer", "proven"),
    [
        (3_000, None, 3_757, 0, True),
        (3_000, 3_757, 2_000, 0, True),
        (4_096, 5_000, 900, 0, True),  # of which most was to be the answer
        (4_096, None, 900, 4_000, True),
        (128_000, None, 3_000, 1_000, False),  # far above what was sent: it speaks of something else
        (None, None, 3_000, 0, False),
        (1, 3_000, 3_000, 0, False),  # no model has so small a window
    ],
)
def test_a_refusal_proves_a_window_below_what_was_sent(
    limit: int | None, requested: int | None, counted: int, answer: int, proven: bool
) -> None:
    assert names_window(refusal(limit, requested), counted, answer) is proven
    assert not names_window(refusal(limit, requested, is_account_limit=True), counted, answer)


def test_what_was_learnt_is_stored_with_its_evidence_and_can_be_forgotten(model: Model) -> None:
    assert learn_refused_window(model, refusal(6_000, 7_123), 7_000)
    assert learn_image_limit(model, 5, 9)
    model.refresh_from_db()
    assert (model.window, model.image_limit, window_source(model)) == (6_000, 5, "refused")
    assert " named 6,000" in describe_window_source(model)
    record_calls(model, [call(1_000, 990)])
    forget_learnt(user=None, model=model)
    model.refresh_from_db()
    assert (model.window, model.image_limit, model.window_evidence, model.reported_counts) == (131_072, None, {}, {})
    assert window_source(model) == "typed"


def test_only_who_may_change_a_model_forgets(model: Model) -> None:
    learn_served_window(model, AllocatedWindow("ollama", 6_000), 7_000)
    with pytest.raises(ProductError) as refused:
        forget_learnt(user=User.objects.create_user(uuid4().hex), model=model)
    assert refused.value.status == 403
    model.refresh_from_db()
    assert (model.window, window_source(model)) == (6_000, "served")


def test_a_typed_window_and_what_was_found_take_the_place_of_a_learnt_one(model: Model) -> None:
    learn_refused_window(model, refusal(6_000), 7_000)
    upsert_model(provider=model.provider, name="m", window=64_000)
    model.refresh_from_db()
    assert (model.window, model.window_evidence) == (64_000, {})
    learn_refused_window(model, refusal(6_000), 7_000)
    Model.objects.filter(pk=model.pk).update(found={"context_window": 32_000, "source": "test"})
    use_reported_values(user=User.objects.create_superuser(uuid4().hex), model=model)
    model.refresh_from_db()
    assert (model.window, window_source(model)) == (32_000, "server")


def test_answers_side_by_side_keep_each_others_samples(committed: None) -> None:
    provider = Provider.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9/v1", enabled=False)
    model = Model.objects.create(provider=provider, name=uuid4().hex, context_window=50_000)
    copies = [Model.objects.get(pk=model.pk) for _ in range(8)]

    def answer(copy: Model) -> None:
        learn_ratio(model=copy, counted=1_000, reported=1_200)
        record_calls(copy, [call(1_000, 1_200)])
        connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(answer, copies))
    model.refresh_from_db()
    assert model.ratio_samples == 8 and model.token_ratio == pytest.approx(1.2)
    assert model.reported_counts["scripts"]["latin"] == [[1_000, 1_200]] * 8
    provider.delete()


def test_every_window_without_proof_is_dropped_by_the_migration(model: Model) -> None:
    statements = [
        operation.sql
        for operation in import_module("llm.migrations.0018_proof_of_windows").Migration.operations
        if "UPDATE llm_model" in str(getattr(operation, "sql", ""))
    ]
    Model.objects.filter(pk=model.pk).update(learnt_window=2_048)
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    model.refresh_from_db()
    assert len(statements) == 1 and model.window == 131_072
