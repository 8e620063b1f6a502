"""Facts about models on the page: time of thinking, broken answers, fallbacks, cache and cost."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from chat.web.messages import MODELS_IN_PAGE
from llm.models import Model, Provider
from tests.e2e.conftest import Screen, answer, ask, expect_complete, field, in_thread, ready, who_answers
from tests.e2e.key_steps import Keys
from tests.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.product]

PRICES = {"input_price": 5, "output_price": 25, "cached_input_price": Decimal("0.5"), "cache_write_price": 6}
DOWN = "http://127.0.0.1:9"  # the port that discards; nobody listens
Make = Callable[..., Model]


@pytest.fixture
def make(product: Product) -> Iterator[Make]:
    """Models of Anthropic's protocol that everybody can choose, until the test is over.

    Named before the page, so that the page is closed when they go: it asks for its plan by itself.
    """
    models: list[Model] = []

    def new(url: str = product.model.url, **fields: Any) -> Model:
        provider = Provider.objects.create(name=uuid4().hex, kind="anthropic", base_url=url)
        name = fields.pop("name", f"claude-{uuid4().hex[:6]}")
        return Model.objects.create(provider=provider, name=name, context_window=64_000, **fields)

    def make(*arguments: Any, **fields: Any) -> Model:
        models.append(in_thread(lambda: new(*arguments, **fields)))
        return models[-1]

    yield make
    # Titles may still be asked of them, so they stay, for nobody to choose.
    in_thread(lambda: Provider.objects.filter(pk__in=[model.provider_id for model in models]).update(enabled=False))


def chosen_model(page: Page) -> Locator:
    return page.locator("input[name=model]:checked")


def choose(page: Page, model: Model) -> None:
    page.reload()  # the models are offered to whoever opens the page
    ready(page)
    who_answers(page).locator(f'[value="{model.pk}"]').check()


def foot(page: Page) -> Locator:
    return answer(page).locator(".message-foot")


def test_the_effort_is_offered_where_the_model_takes_one_and_stays_chosen(make: Make, screen: Screen) -> None:
    page, plain, thinking = screen.page, make(), make(reasoning=True, efforts=["low", "high"])
    effort = page.get_by_label("Effort of reasoning")
    choose(page, plain)
    expect(effort).to_be_hidden()
    who_answers(page).locator(f'[value="{thinking.pk}"]').check()
    offered = effort.locator("option:not([disabled])")
    expect(offered).to_have_text(["As set", "Low", "High"])
    effort.select_option("high")
    screen.check(who_answers(page))
    ask(page, "Think hard.", reasoning="Hm.", text="I have thought.")
    expect_complete(page)
    screen.press(answer(page).get_by_role("link", name="What it saw"))
    screen.press(page.locator("#panel").get_by_text("For the curious"))
    expect(page.locator("#panel-curious .facts").first).to_contain_text("high")
    page.reload()
    ready(page)
    expect(effort).to_have_value("high")


def test_the_rest_of_many_models_comes_to_whoever_is_at_the_list_with_the_keyboard(make: Make, page: Page) -> None:
    names = [make().name for _ in range(MODELS_IN_PAGE + 1)]
    routes: list[Route] = []
    page.reload()
    ready(page)
    page.route("**/models/", lambda route: routes.append(route))
    keys, opener, sheet = Keys(page), page.locator(".who-opener"), page.get_by_role("dialog", name="Model and persona")
    opener.focus()
    keys.press("Enter")
    search, rows = sheet.get_by_label("Search models"), sheet.locator(".who-model")
    expect(search).to_be_focused()
    expect(rows.nth(MODELS_IN_PAGE - 1)).to_be_attached()
    first = rows.first.locator(".who-name").inner_text()
    keys.write(first)
    keys.to(first)
    keys.press("Space")
    chosen = sheet.get_by_role("radio", name=first).first  # other providers of other tests may have one of that name
    while not routes:
        page.wait_for_timeout(20)
    routes[0].continue_()
    expect(sheet.locator("[data-all-models]")).to_have_count(0)
    expect(chosen).to_be_focused()
    expect(chosen).to_be_checked()
    expect(rows.filter(has_not_text=first, visible=True)).to_have_count(0)
    keys.to("Search models", back=True)
    keys.press("Control+a", "Delete")
    keys.to(first)
    last = [name for name in rows.locator(".who-name").all_inner_texts() if name in names][-1]
    for _ in rows.all():
        keys.press("ArrowDown")
        if last in (opener.text_content() or ""):
            break
    keys.press("Escape")
    expect(opener).to_be_focused()
    expect(opener).to_contain_text(last)


def test_a_favourite_is_marked_in_the_list_and_comes_first(make: Make, page: Page) -> None:
    names = sorted(make(display_name=f"{name} {uuid4().hex[:4]}").label for name in ("Zebra", "Yak"))
    page.reload()
    ready(page)
    page.locator(".who-opener").click()
    star = page.get_by_role("button", name=f"{names[1]} at the top of the list")
    expect(star).to_have_attribute("aria-pressed", "false")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    expect(star).to_be_focused()
    page.reload()
    ready(page)
    expect(page.locator(".who-name").first).to_have_text(names[1])


def test_an_answer_that_stops_early_says_why_and_goes_on_with_one_button(make: Make, screen: Screen) -> None:
    page, model = screen.page, make()
    choose(page, model)
    steps = [{"text": "Once upon a time", "finish": "length"}, {"text": "there was a king."}]
    ask(page, "Tell me a story.", steps=steps)
    expect_complete(page)
    expect(foot(page)).to_contain_text("The answer has reached its greatest length and stops here.")
    screen.check()
    screen.press(foot(page).get_by_role("button", name="Continue"))
    expect(answer(page, 1)).to_contain_text("there was a king.")
    expect_complete(page)
    expect(page.get_by_text("Asked to continue.")).to_be_visible()
    expect(page.get_by_role("button", name="Continue")).to_have_count(0)
    ask(page, "And then?", steps=[{"text": "No.", "finish": "refusal"}, {"text": "He went to the sea."}])
    expect(answer(page, 2)).to_contain_text("The model declined to answer this.")
    expect_complete(page)
    screen.press(foot(page).get_by_role("button", name="Try again"))
    expect_complete(page)
    expect(answer(page)).to_contain_text("declined")  # the scripted model says the same again


def test_an_answer_of_a_fallback_has_its_name_and_says_why(make: Make, screen: Screen) -> None:
    page = screen.page
    writer = make(name="claude-that-is-there")
    chosen = make(DOWN, name="claude-that-is-down", fallback=writer)
    choose(page, chosen)
    ask(page, "Who are you?", text="I stand in.")
    expect_complete(page)
    expect(answer(page)).to_contain_text("I stand in.")
    expect(answer(page).locator("header, .by").first).to_contain_text(writer.name)
    why = f"{chosen.name} was not available (its provider could not be reached), so {writer.name} was asked instead."
    expect(foot(page)).to_contain_text(why)
    expect(chosen_model(page)).to_have_value(str(chosen.pk))
    screen.check()


def test_the_panel_says_what_came_from_the_cache_and_what_it_cost(make: Make, screen: Screen) -> None:
    page, model = screen.page, make(name=f"claude-opus-5-5-{uuid4().hex[:6]}", **PRICES)
    choose(page, model)
    field(page).fill("Hello")
    screen.press(page.locator(".plan-line"))
    expect(page.locator("#panel-cost")).to_contain_text("+ $0.025 per 1,000 tokens (some 700 words) of answer")
    screen.check()
    screen.press(page.locator("[data-close-panel]"))
    for text in ("A long story. " * 300, "And on?"):
        ask(page, text, text="Indeed.")
        expect_complete(page)
    expect(foot(page)).to_contain_text("$0.0")
    screen.press(answer(page).get_by_role("link", name="What it saw"))
    panel = page.locator("#panel")
    screen.press(panel.get_by_text("Cost and cache"))
    expect(panel.get_by_text("From the provider's cache")).to_be_visible()
    expect(panel.locator("dt", has_text="From the provider's cache").locator("+ dd")).to_contain_text("%)")
    expect(panel.locator("dt", has_text="This answer").locator("+ dd")).to_contain_text("of them cached")
    expect(panel.locator("dt", has_text="The whole conversation so far").locator("+ dd")).to_contain_text("$0.0")
    screen.check(panel)
