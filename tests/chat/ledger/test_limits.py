"""Limits: whom they bind, the tokens that a turn reserves, and the notices to people and programs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.limits.holding import limits_of_person
from accounts.limits.services import delete_limit, save_limit
from accounts.models import ApiToken, Limit, PeopleGroup, User
from accounts.models.limit import period
from accounts.services import create_token
from chat.conversations import titles
from chat.conversations.services import create_conversation
from chat.ledger.limits import load_all_states
from chat.ledger.models import ModelCall
from chat.ledger.sums import sum_days
from chat.models import Conversation, Message, NextMessage, SummaryJob, Turn
from chat.models.conversation_state import ChatScope
from chat.prompts.preview import TurnDraft, plan_ahead
from chat.prompts.wording import plan_line
from chat.readings.services import ReadingRequest, estimate, start_reading
from chat.runs.services import create_run
from chat.runs.state_machine import advance
from chat.sending.services import queue, send, send_next
from chat.summaries import services as summaries
from chat.turns.store import Ending, TurnOutcome, end_turn
from chat.turns.submit import Ask, regenerate
from core.audit.origin import Origin, current_origin, use_origin
from core.errors import ProductError
from core.sentences import Sentence
from files.models import File, FileText
from llm.models import Model, Provider
from personas.models import BudgetProfile, Persona
from projects.planner.rules import Actor, NewTask
from projects.planner.services import create as create_task

pytestmark = pytest.mark.django_db


@pytest.fixture
def model() -> Model:
    provider = Provider.objects.create(name=uuid4().hex, base_url="http://127.0.0.1:9/v1")
    prices = {"input_price": Decimal(2), "output_price": Decimal(10)}
    Model.objects.filter(default=True).update(default=False)
    return Model.objects.create(provider=provider, name="silent", context_window=8_000, default=True, **prices)


@pytest.fixture
def user(model: Model) -> User:
    return User.objects.create_user(uuid4().hex)


def limit(unit: str, amount: object, per: str = "day", **whom: Any) -> Limit:
    return save_limit(user=None, limit=Limit(unit=unit, amount=Decimal(str(amount)), per=per, **whom))


def used(person: User, at: datetime | None = None, **fields: Any) -> None:
    values = {"input": 700, "output": 300, "model_name": "m", "provider_name": "p", "purpose": "answer", **fields}
    row = ModelCall.objects.create(person=person, cost=Decimal("0.5"), **values)
    if at is not None:
        ModelCall.objects.filter(pk=row.pk).update(created=at)


def ask(person: User, conversation: Conversation | None = None, **more: Any) -> Turn:
    place = conversation or create_conversation(user=person)
    return send(user=person, conversation=place, ask=Ask("Hello", **more))[0]


def refusal(person: User, **more: Any) -> ProductError:
    with pytest.raises(ProductError) as caught:
        ask(person, **more)
    assert (caught.value.code, caught.value.status) == ("limit_reached", 429)
    return caught.value


def done(turn: Turn, tokens: int) -> None:
    """End a turn as its worker does, with so many tokens read by the model."""
    turn = Turn.objects.select_related("conversation__owner", "model__provider").get(pk=turn.pk)
    call: Any = {"cycle": 1, "used": tokens, "tools_tokens": 0, "limit": 8_000, "usage": {"input": tokens, "output": 1}}
    outcome = TurnOutcome([{"type": "text", "text": "x"}], 1, calls=[call])
    assert end_turn(turn, Ending(Turn.Status.DONE), outcome) is not None


@contextmanager
def program(token: ApiToken) -> Iterator[None]:
    with use_origin(Origin(token_id=token.pk, token_name=token.name)):
        yield


@pytest.mark.parametrize(
    ("unit", "amount", "start"),
    [
        ("tokens", 2_000, "You have reached the limit of 2,000 tokens (pieces of words) a day. It resets at "),
        ("money", "0.5", "You have reached the limit of $0.5 a day. It resets at "),
        ("turns", 2, "You have reached the limit of 2 turns a day. It resets at "),
    ],
)
def test_what_is_used_up_lets_nothing_more_begin_until_it_begins_anew(
    user: User, unit: str, amount: object, start: str
) -> None:
    limit(unit, amount, user=user)
    used(user, timezone.now() - timedelta(days=1))
    used(user)
    if unit != "money":
        used(user)
    error = refusal(user)
    assert error.detail.startswith(start) and error.detail.endswith("Your text is kept.")
    assert 0 < error.extra["retry_after"] <= 25 * 3600
    assert error.headers == {"Retry-After": str(error.extra["retry_after"])}
    assert not Message.objects.filter(conversation__owner=user).exists()
    ask(User.objects.create_user(uuid4().hex))


def test_the_strictest_of_everyones_and_ones_own_holds(user: User) -> None:
    limit("turns", 5)
    own = limit("turns", 1, user=user)
    monthly = limit("turns", 0, per="month", user=User.objects.create_user(uuid4().hex))
    used(user)
    assert refusal(user).extra["limit"]["amount"] == "1"
    delete_limit(user=None, limit=own)
    ask(user)
    assert monthly.user is not None
    refusal(monthly.user)
    assert [each.amount for each in limits_of_person(user.pk)] == [5]


def test_a_groups_limit_holds_for_each_of_its_members(user: User) -> None:
    group = PeopleGroup.objects.create(name=uuid4().hex)
    limit("turns", 1, group=group)
    ask(user)
    group.members.add(user, other := User.objects.create_user(uuid4().hex))
    refusal(user)
    ask(other)
    group.members.remove(user)
    ask(user)


def test_a_turn_sets_aside_what_it_may_take_and_its_end_gives_that_back(user: User) -> None:
    limit("tokens", 3_000, user=user)
    turn = ask(user)
    assert turn.reserved_tokens is not None and 1_000 < turn.reserved_tokens < 3_000
    assert turn.reserved_cost is not None and turn.reserved_cost > 0
    for _ in range(3_000 // turn.reserved_tokens):
        ask(user)
    error = refusal(user)
    assert "may use up your limit" in error.detail and error.extra["retry_after"] == 30
    assert load_all_states(user)[0]["used"] == "0"
    done(turn, 40)
    assert load_all_states(user)[0]["used"] == "41"
    ask(user)


def test_the_next_turn_of_a_conversation_sets_its_last_prompt_aside_too(user: User) -> None:
    limit("tokens", 100_000, user=user)
    first = ask(user)
    done(first, 5_000)
    again = ask(user, first.conversation)
    assert (again.reserved_tokens or 0) - (first.reserved_tokens or 0) == 5_000


def test_a_turn_that_lost_its_worker_gives_back_what_it_had_set_aside(user: User) -> None:
    limit("turns", 1, user=user)
    turn = ask(user)
    refusal(user)
    done(turn, 10)
    refusal(user)  # it was a turn
    other = User.objects.create_user(uuid4().hex)
    limit("turns", 1, user=other)
    lost = ask(other)
    lost = Turn.objects.select_related("conversation__owner").get(pk=lost.pk)
    assert end_turn(lost, Ending(Turn.Status.INTERRUPTED), TurnOutcome([], 0)) is not None  # as the sweeper does
    ask(other)


def test_answers_side_by_side_and_answers_anew_are_turns_each(user: User, model: Model) -> None:
    other = Model.objects.create(provider=model.provider, name="other", context_window=8_000)
    limit("turns", 2, user=user)
    with pytest.raises(ProductError, match="limit_reached"):
        send(
            user=user,
            conversation=create_conversation(user=user),
            ask=Ask("Hello", models=[model.pk, other.pk, Model.objects.create(provider=model.provider, name="3").pk]),
        )
    first = ask(user, models=[model.pk])
    done(first, 10)
    [anew] = regenerate(user=user, message=first.answer)
    done(anew, 10)
    with pytest.raises(ProductError, match="limit_reached"):
        regenerate(user=user, message=first.answer)


def test_a_token_has_limits_besides_those_of_its_person(user: User) -> None:
    token, _secret = create_token(user=user, name="robot")
    limit("turns", 1, token=token)
    limit("turns", 3, user=user)
    with program(token):
        turn = ask(user)
        assert refusal(user).extra["limit"]["for"] == "token"
    ask(user)
    done(turn, 10)
    assert ModelCall.objects.get(turn=turn).token_id == token.pk
    with program(token):
        refusal(user)
    ask(user)
    assert refusal(user).extra["limit"]["for"] == "user"


def test_what_a_program_queues_is_still_of_its_token(user: User) -> None:
    token, _secret = create_token(user=user, name="robot")
    limit("turns", 1, token=token)
    with program(token):
        turn = ask(user)
        queue(user=user, conversation=turn.conversation, ask=Ask("And then?"))
    done(turn, 10)
    assert not send_next(turn.conversation_id)
    queued = NextMessage.objects.get(conversation=turn.conversation)
    assert queued.text == "And then?" and queued.problem.english.startswith(
        "You have reached the limit of 1 turns a day."
    )


def test_a_month_is_of_sums_calls_and_what_is_set_aside(user: User) -> None:
    limit("tokens", 10_000, per="month", user=user)
    first, _next = period("month")
    for day in range((timezone.now() - first).days + 1):
        used(user, first + timedelta(days=day, seconds=1))
    used(user, first - timedelta(seconds=1))
    expected = str(1_000 * ((timezone.now() - first).days + 1))
    assert load_all_states(user)[0]["used"] == expected
    sum_days()
    assert load_all_states(user)[0]["used"] == expected


def test_from_80_percent_the_plan_line_warns(user: User) -> None:
    limit("tokens", 1_200, user=user)
    scope = ChatScope(create_conversation(user=user))
    plan = plan_ahead(user=user, scope=scope, draft=TurnDraft("Hi"))
    assert plan["near_limit"] is None and "Tokens a day" not in plan_line(plan).words
    used(user)
    plan = plan_ahead(user=user, scope=scope, draft=TurnDraft("Hi"))
    assert plan_line(plan).words.startswith("Tokens a day: 1,000 of 1,200 used · ") and plan_line(plan).icon == "warn"


def test_no_limit_costs_no_query_and_limits_one(user: User) -> None:
    place = create_conversation(user=user)
    done(ask(user, place), 10)

    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            turn = ask(user, place)
        done(turn, 10)
        return len(captured)

    queries()
    without = queries()
    limit("tokens", 1_000_000, user=user)
    limit("money", 1_000_000, per="month")
    queries()  # this process reads limits and rights anew
    assert queries() == without + 1


def test_over_a_limit_nothing_is_read_run_or_summarised(user: User, model: Model) -> None:
    place = create_conversation(user=user)
    done(ask(user, place), 700)
    place.refresh_from_db()
    Model.objects.filter(pk=model.pk).update(tools=True)
    file = File.objects.create(owner=user, name="a.txt", size=1, sha256="0" * 64)
    FileText.objects.create(file=file, text="Ten kg. " * 50)
    question = ReadingRequest(user, [file], "How much?")
    calls = estimate(request=question).plan.calls
    task = create_task(actor=Actor(user), new=NewTask("Walk", archetype="model", draft=False))
    token, _secret = create_token(user=user, name="robot")
    limit("tokens", 500, token=token)
    ModelCall.objects.update(token=token)
    starts: list[Callable[[], Any]] = [
        lambda: start_reading(user=user, request=question, calls=calls),
        lambda: create_run(user=user, task=task),
        lambda: summaries._start(place, SummaryJob(conversation=place, token_id=current_origin().token_id)),
    ]
    for begin in starts:
        with program(token), pytest.raises(ProductError) as caught:
            begin()
        assert (caught.value.code, caught.value.extra["limit"]["for"]) == ("limit_reached", "token")
    reading, run = starts[0](), starts[1]()  # the person's own are another matter
    assert (reading.token_id, run.token_id) == (None, None)


def test_what_a_program_has_begun_counts_for_its_token_to_the_end(user: User, model: Model) -> None:
    Model.objects.filter(pk=model.pk).update(tools=True)
    task = create_task(actor=Actor(user), new=NewTask("Walk", archetype="model", draft=False))
    token, _secret = create_token(user=user, name="robot")
    with program(token):
        run = create_run(user=user, task=task)
    turn = Turn.objects.get(conversation=run.conversation)
    assert turn.token_id == token.pk
    limit("tokens", 500, token=token)
    done(turn, 700)
    Conversation.objects.filter(pk=run.conversation_id).update(titled=True)
    advance(run.pk)  # by the worker, which knows of no token but the run's
    run.refresh_from_db()
    assert (run.status, run.code) == ("waiting", "limit_reached") and "500 tokens (pieces" in run.detail.english


def test_no_title_is_asked_for_over_a_limit_until_the_next_answer(user: User) -> None:
    limit("tokens", 500, user=user)
    turn = ask(user)
    done(turn, 700)
    assert titles.claim_title(turn.conversation_id) == turn.pk
    with pytest.raises(ProductError, match="limit_reached"):
        titles._check_limits(Turn.objects.select_related("conversation").get(pk=turn.pk))
    assert not Conversation.objects.get(pk=turn.conversation_id).titled


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"unit": "tokens", "per": ""}, "per"),
        ({"unit": "storage", "per": "day"}, "per"),
        ({"unit": "turns", "amount": "1.5"}, "amount"),
        ({"unit": "turns", "amount": "-1"}, "amount"),
        ({"unit": "live_turns", "per": "", "amount": "0"}, "amount"),
        ({"unit": "sheep"}, "unit"),
    ],
)
def test_a_limit_that_says_nothing_is_refused(fields: dict[str, Any], field: str) -> None:
    values = {"unit": "tokens", "per": "day", "amount": "5", **fields}
    with pytest.raises(ProductError) as caught:
        limit(values.pop("unit"), **values)
    assert caught.value.code == "invalid_setting" and caught.value.detail.startswith(f"{field}: ")


def test_a_limit_is_there_once(user: User) -> None:
    limit("tokens", 5)
    limit("tokens", 5, per="month")
    limit("tokens", 5, user=user)
    with pytest.raises(ProductError, match="invalid_setting"):
        limit("tokens", 6)
    assert isinstance(user.pk, UUID)


def test_a_failed_answer_without_a_count_hides_no_prompt_before_it(user: User) -> None:
    limit("tokens", 100_000, user=user)
    first = ask(user)
    done(first, 5_000)
    failed = Turn.objects.select_related("conversation__owner", "model__provider").get(
        pk=ask(user, first.conversation).pk
    )
    ending = Ending(Turn.Status.FAILED, "provider_unreachable", Sentence("It cannot be reached."))
    end_turn(failed, ending, TurnOutcome([], 0))
    again = ask(user, first.conversation)
    assert (again.reserved_tokens or 0) - (first.reserved_tokens or 0) == 5_000


def test_the_answer_that_is_set_aside_is_as_long_as_the_personas(user: User) -> None:
    limit("tokens", 100_000, user=user)
    profile = BudgetProfile.objects.create(name=uuid4().hex, reserved_output=3_000)
    persona = Persona.objects.create(owner=user, name="P", budget_profile=profile)
    without = ask(user).reserved_tokens or 0
    place = create_conversation(user=user, persona=persona)
    assert (ask(user, place).reserved_tokens or 0) - without == 3_000 - BudgetProfile().reserved_output


@pytest.mark.parametrize(("unit", "amount"), [("tokens", 1), ("money", "0.000001")])
def test_a_prompt_that_alone_is_more_than_what_is_left_does_not_begin(user: User, unit: str, amount: object) -> None:
    limit(unit, amount, user=user)
    error = refusal(user)
    assert error.detail.startswith("This message needs more than is left of your limit.")
    assert error.extra["retry_after"] > 30
    assert not Turn.objects.filter(conversation__owner=user).exists()


def test_the_prompt_of_a_conversation_that_is_gone_on_with_counts_with_its_messages(user: User) -> None:
    first = ask(user)
    done(first, 5_000)
    limit("tokens", 9_000, user=user)
    used(user, input=2_000, output=0)
    error = refusal(user, conversation=first.conversation)
    assert error.detail.startswith("This message needs more than is left of your limit.")
    ask(user)  # a new one is short enough


def test_what_only_answers_being_written_take_is_waited_for(user: User) -> None:
    limit("tokens", 1_500, user=user)
    place = create_conversation(user=user)
    ask(user)
    with pytest.raises(ProductError) as caught:
        send(user=user, conversation=place, ask=Ask("word " * 1_000))  # at least 1,000 tokens
    assert "may use up your limit" in caught.value.detail and caught.value.extra["retry_after"] == 30
