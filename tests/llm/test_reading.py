"""A server that has not read the whole prompt is found by what it reports, and no other is suspected.

The servers here are made up, as those in use are: they cut whole messages from the front of a prompt that is longer
than their window, keep the system prompt and the newest message, and report any number up to that window.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from llm.models import Model
from llm.services import RATIO_MEMORY, Sent, cut, learn_cut
from llm.types.model_call import Allocated

TEMPLATE = 8  # tokens that a chat template adds to a message, at most
OVERHEAD = 4  # tokens of a message, by our count


@dataclass
class Prompt:
    """By our count; `ratio`: tokens of the server's tokenizer for one of ours."""

    system: int
    messages: list[int]  # oldest first
    ratio: float
    tools: int = 0

    @property
    def sent(self) -> Sent:
        return Sent(self.system + sum(self.messages), self.tools)

    def read(self, chance: random.Random, window: int | None = None) -> int:
        """What the server reports; of a prompt beyond its window what is left of it."""
        template = chance.randint(3, TEMPLATE) - OVERHEAD
        sizes = [round(size * self.ratio) + template for size in self.messages]
        fixed = round(self.system * self.ratio) + round(self.tools * self.ratio * chance.uniform(0.7, 1.3))
        while window and len(sizes) > 1 and fixed + sum(sizes) > window:
            sizes.pop(0)
        if window and fixed + sum(sizes) > window:
            return chance.randint(window // 2, window)  # the newest message alone is too long: its tokens are cut
        return fixed + sum(sizes)


def conversation(chance: random.Random, tokens: int, ratio: float, tools: int = 0) -> Prompt:
    messages: list[int] = []
    while sum(messages) < tokens:
        messages.append(OVERHEAD + round(chance.choice((20, 80, 300, 900)) * chance.uniform(0.5, 1.5)))
    return Prompt(chance.choice((60, 250, 600)), messages, ratio, tools)


def used(chance: random.Random, model: Model, ratio: float, sizes: tuple[int, ...]) -> Model:
    """With what it has reported of whole prompts of these sizes."""
    prompts = [conversation(chance, size, ratio) for size in sizes]
    model.reads = [[prompt.sent.texts, prompt.read(chance)] for prompt in prompts][-RATIO_MEMORY:]
    return model


@dataclass
class Case:
    model: Model
    prompt: Prompt
    window: int
    allocated: Allocated | None = None


def truncated() -> Iterator[Case]:
    """Fifty: windows × how far the prompt is beyond them × what is known of the tokenizer × what the server says."""
    chance = random.Random(14)
    for window in (2_048, 4_096, 8_192, 16_384, 32_768):
        for over in (1.8, 4.0):
            tools = chance.choice((0, window // 8))
            known = conversation(chance, round(window * over), 1.0, tools)
            yield Case(Model(tokenizer="o200k_base"), known, window)
            yield Case(Model(), conversation(chance, round(window * over), 1.12, tools), window)
            slightly = conversation(chance, round(window * 1.1) + 500, chance.uniform(1.0, 1.3))
            yield Case(Model(), slightly, window, Allocated("ollama", window))
            learnt = used(chance, Model(), 1.35, (window // 2,) * 6)
            yield Case(learnt, conversation(chance, round(window * over), 1.35), window)
            # A loop of tools: the first calls of the turn were read whole, the results are too much.
            loop = used(chance, Model(), 1.0, (round(window * 0.9),))
            yield Case(loop, conversation(chance, round(window * (over - 0.1)), 1.0), window)


TRUNCATED = list(truncated())


@pytest.mark.parametrize("number", range(len(TRUNCATED)))
def test_a_prompt_that_was_cut_is_named_on_its_first_answer(number: int) -> None:
    case, chance = TRUNCATED[number], random.Random(number)
    read = case.prompt.read(chance, case.window)
    assert read <= case.window
    found = cut(case.model, case.prompt.sent, read, case.allocated)
    assert found is not None and found.read == read < found.sent


def healthy() -> Iterator[tuple[str, Model, Sent, int, Allocated | None]]:
    """Five hundred: what makes a server's count another than ours, with tokenizers known, unknown and learnt."""
    for number in range(500):
        chance = random.Random(number)
        size = round(chance.choice((300, 1_500, 6_000, 20_000, 90_000)) * chance.uniform(0.7, 1.3))
        kind = ("known", "unknown", "learnt", "noisy")[number % 4]
        model, ratio = Model(tokenizer="o200k_base" if kind == "known" else ""), 1.0
        if kind != "known":
            ratio = chance.uniform(0.8, 1.5)
        if kind == "learnt":
            model = used(chance, model, ratio, tuple(chance.randint(200, 30_000) for _ in range(20)))
        prompt = conversation(chance, size, ratio, tools=chance.choice((0, 400, 2_500)))
        if kind == "noisy":  # a gateway that adds text of its own to some prompts
            model.reads = [
                [each.sent.texts, each.read(chance) + chance.choice((0, 0, 1_500, 4_000))]
                for each in (conversation(chance, chance.randint(200, 30_000), ratio) for _ in range(20))
            ]
        read = prompt.read(chance)
        reported = {
            "templates": read,
            "images": read + chance.choice((85, 765, 2_900, 11_000)),
            "a gateway's text": read + chance.choice((500, 4_000)),
            "a sum over calls": read + chance.randint(200, read),
            "what is cached, apart": read - round(read * 0.9) + round(read * 0.9),
            "nothing": 0,
            "nonsense": chance.choice((1, 7, 200, 2**31 - 1)),
        }
        what = chance.choice(list(reported))
        roomy = Allocated("llama.cpp", 131_072 * 2)
        yield what, model, prompt.sent, reported[what], chance.choice((None, roomy, Allocated("ollama", None)))


def test_what_counting_can_explain_is_no_alarm() -> None:
    cases = list(healthy())
    alarms = [(what, sent, read) for what, model, sent, read, said in cases if cut(model, sent, read, said)]
    assert len(cases) == 500 and not alarms


def test_text_that_a_server_adds_to_short_prompts_is_not_expected_of_long_ones() -> None:
    model = Model(reads=[[400, 700]] * RATIO_MEMORY)
    assert cut(model, Sent(20_000), 20_300) is None


@pytest.mark.parametrize(
    ("tokenizer", "reads", "sent", "read", "missing"),
    [
        ("", [], Sent(9_138), 4_096, 5_042),
        ("", [], Sent(9_138), 6_000, 0),  # the tokenizer is not known
        ("o200k_base", [], Sent(9_138), 6_000, 3_138),
        ("o200k_base", [], Sent(9_138), 8_000, 0),
        ("", [[5_000, 7_000]] * 9, Sent(9_138), 8_000, 4_793),
        ("", [[5_000, 9_500]] * 9, Sent(9_138), 8_900, 0),  # in another language it makes as few tokens as we do
        ("", [[5_000, 3_500]] * 9, Sent(9_138), 6_000, 0),  # it always counts less than we do
        ("o200k_base", [], Sent(350), 60, 0),  # too little to say anything
        ("o200k_base", [], Sent(9_138), 0, 0),  # it does not say
        ("o200k_base", [], Sent(9_138), 1, 0),  # nonsense
        ("o200k_base", [], Sent(9_138), 12_000, 0),  # with images
        ("o200k_base", [], Sent(1_500, tools=4_500), 1_400, 0),  # it does not write tools into the prompt
    ],
)
def test_the_shares_below_which_a_server_has_cut(
    tokenizer: str, reads: list[list[int]], sent: Sent, read: int, missing: int
) -> None:
    found = cut(Model(tokenizer=tokenizer, reads=reads), sent, read)
    assert (found.missing if found else 0) == missing


def test_what_the_server_says_of_its_window_decides_doubtful_counts() -> None:
    sent, read = Sent(9_138), 7_400
    assert cut(Model(), sent, read) is None
    proven = cut(Model(), sent, read, Allocated("ollama", 8_192))
    assert proven is not None and (proven.window, proven.server) == (8_192, "ollama")
    assert cut(Model(tokenizer="o200k_base"), sent, read, Allocated("llama.cpp", 32_768)) is None


def test_a_window_that_the_server_names_is_learnt_as_it_is(db: None) -> None:
    model = Model(context_window=100_000)
    found = cut(model, Sent(60_000), 30_000, Allocated("ollama", 40_000))
    assert found is not None
    learn_cut(model, found)
    assert model.window == 40_000
