"""A tool that searches the person's other conversations and quotes them word for word.

1. `PastScope` says which conversations the model may read: the person's own ones, and those of other members that are
   shared with the project of this conversation. A conversation or a project that is kept out is never among them.
2. The index of messages finds the messages with any of the words (`chat.models.words.ranked`).
3. Only messages on the branch on show, or on the shared branch, are quoted.
4. The best messages are quoted, grouped by conversation. Each conversation is a document with a number, so that the
   answer can cite it and people can open the quoted message.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any
from uuid import UUID

from chat.citations.words import stem, words_of
from chat.context.rendering import CitationNumbers, ToolGuidance, documents_json
from chat.context.types import Document
from chat.documents.numbers import assign_numbers
from chat.models import Conversation, Message, TeamShare
from chat.models.parts import FoundDocument
from chat.models.tree import on_branches
from chat.models.words import Phrases, Term, fold, parse_query, ranked, split_sentence, tsquery, words_in
from chat.tools.conversation import quotation
from core.background import on_database
from core.sentences import Sentence
from llm.types.model_call import ToolDefinition
from llm.types.tools import BadArguments, ToolOutput
from projects.models import Project

SEARCH_CONVERSATIONS = "search_conversations"  # the name of the tool
PAST_GUIDANCE = ToolGuidance(SEARCH_CONVERSATIONS, is_search=True)
HITS = 8  # quoted messages
CANDIDATES = 60  # best messages of the index that are weighed against each other
MAX_SHARES = 50  # newest shares with the project that are searched
READ = 20_000  # characters of a candidate that are weighed
NO_RESULTS = "Nothing was found in other conversations. Try other words."
# BM25 with the usual constants: how soon more of a word counts no more, and how much long messages lose.
SATURATION = 1.2
LENGTH_SHARE = 0.75
LEAST_STEM = 3  # letters


@dataclass(frozen=True, slots=True)
class PastScope:
    """The conversation that is being answered, and its project if its owner is a member."""

    conversation: Conversation
    project: Project | None

    def shares(self) -> list[TeamShare]:
        """Return the newest shares of other members with the project."""
        if self.project is None:
            return []
        rows = TeamShare.objects.received_by(self.conversation.owner).filter(project=self.project)
        rows = rows.filter(conversation__in=Conversation.objects.findable()).select_related("conversation__owner")
        return list(rows.order_by("-updated", "-id")[:MAX_SHARES])


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query, folded. `beginning`: the beginning of its other forms, or the word itself."""

    word: str
    beginning: str

    def count(self, words: Mapping[str, int]) -> int:
        """Return how often the word, or another form of it, is among the counted words."""
        return sum(number for word, number in words.items() if word == self.word or word.startswith(self.beginning))


@dataclass(frozen=True, slots=True)
class PastQuery:
    """A parsed query: its words for the ranking, its terms for the index, and its phrases for the quotations."""

    words: Sequence[QueryWord]
    terms: Sequence[str]
    phrases: Phrases


def parse_past_query(query: str) -> PastQuery:
    """Parse the words of a query. Function words count only if there are no others. It has no terms without a word."""
    phrases = [part for phrase in parse_query(query) for part in split_sentence(phrase)]
    function_words = {fold(word.lower) for word in words_of(query) if not word.content}
    content = [phrase for phrase in phrases if not all(term.word in function_words for term in phrase)] or phrases
    words: dict[str, QueryWord] = {}
    terms: dict[str, None] = {}
    for phrase in content:
        for term in phrase:
            words.setdefault(term.word, QueryWord(term.word, _beginning(term.word)))
        if len(phrase) > 1:
            terms[tsquery([phrase])] = None
            continue
        terms[tsquery([[Term(phrase[0].word, False)]])] = None
        terms[tsquery([[Term(_beginning(phrase[0].word), True)]])] = None
    return PastQuery(list(words.values()), list(terms), [[Term(w.beginning, True)] for w in words.values()])


def _beginning(word: str) -> str:
    base = fold(stem(word))
    return base if len(base) >= LEAST_STEM and word.startswith(base) else word


class SearchConversations:
    """Search the person's other conversations, and those that are shared with the project."""

    timeout = 20.0

    definition = ToolDefinition(
        SEARCH_CONVERSATIONS,
        "Search the person's other conversations. Returns quotes with author and time, each conversation a document.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words that were used there, such as: Lisbon hotel booking"}
            },
            "required": ["query"],
        },
    )

    def __init__(self, scope: PastScope) -> None:
        self.scope = scope

    def label(self, arguments: Mapping[str, Any]) -> Sentence:
        return Sentence("Searching your conversations for “{get}”", get=str(arguments.get("query", ""))[:80])

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        query = arguments.get("query")
        parsed = parse_past_query(query) if isinstance(query, str) else None
        if parsed is None or not parsed.terms:
            raise BadArguments("“query” must be a text with the words to look for.")
        return await on_database(self._search, parsed)

    def _search(self, query: PastQuery) -> ToolOutput:
        shares = {share.conversation_id: share for share in self.scope.shares()}
        messages = self._best(query, shares)
        if not messages:
            return ToolOutput(NO_RESULTS)
        by_conversation: dict[UUID, list[Message]] = {}
        for message in messages:
            by_conversation.setdefault(message.conversation_id, []).append(message)
        numbers = assign_numbers(self.scope.conversation, [document_id(pk) for pk in by_conversation])
        documents = [self._document(group, query.phrases, shares) for group in by_conversation.values()]
        places = [
            _place(numbers[document_id(pk)], group[0], shares.get(pk), self._day(group[0]))
            for pk, group in by_conversation.items()
        ]
        return ToolOutput(documents_json(documents, CitationNumbers(numbers)), {"documents": places})

    def _best(self, query: PastQuery, shares: Mapping[UUID, TeamShare]) -> list[Message]:
        """Return the messages to quote, best first."""
        person = self.scope.conversation.owner
        own = Conversation.objects.findable().filter(owner=person).exclude(pk=self.scope.conversation.pk)
        readable = own | Conversation.objects.findable().filter(pk__in=[*shares])
        owners = {person.pk, *(share.conversation.owner_id for share in shares.values())}
        ids = ranked(owners=[*owners], conversations=readable, terms=query.terms, limit=CANDIDATES)
        rows = Message.objects.filter(pk__in=ids).select_related("conversation__owner").defer("tokens")
        leaves = {
            row.conversation_id: share.leaf_id
            if (share := shares.get(row.conversation_id)) is not None
            else row.conversation.leaf_id
            for row in rows
        }
        shown = on_branches([leaf for leaf in leaves.values() if leaf is not None], ids)
        return weighed([row for row in rows if row.pk in shown], query.words)[:HITS]

    def _document(self, group: Sequence[Message], phrases: Phrases, shares: Mapping[UUID, TeamShare]) -> Document:
        """Return the quotes of one conversation, oldest first."""
        conversation = group[0].conversation
        share = shares.get(conversation.pk)
        person = "the person" if share is None else conversation.owner.username
        zone = self.scope.conversation.owner.zone
        quotes = [
            f"{message.created.astimezone(zone):%Y-%m-%d %H:%M}, "
            f"{person if message.role == Message.Role.USER else 'a model'}:\n{quotation(message.text, phrases)}"
            for message in sorted(group, key=lambda message: message.depth)
        ]
        metadata = "another conversation of the person" if share is None else f"shared by {person} with the project"
        return Document(document_id(conversation.pk), _title(conversation, share), "\n\n".join(quotes), None, metadata)

    def _day(self, message: Message) -> str:
        return f"{message.created.astimezone(self.scope.conversation.owner.zone):%Y-%m-%d}"


def document_id(conversation: UUID) -> str:
    """Return the id under which a conversation has its number as a document. A slash marks ids that are no files'."""
    return f"conversation/{conversation}"


def _title(conversation: Conversation, share: TeamShare | None) -> str:
    return (share.title if share is not None else conversation.title) or "New conversation"


def _place(number: int, best: Message, share: TeamShare | None, day: str) -> FoundDocument:
    place: FoundDocument = {
        "number": number,
        "title": _title(best.conversation, share),
        "conversation": str(best.conversation_id),
        "message": str(best.pk),
        "date": day,
    }
    if share is not None:
        place["share"] = str(share.pk)
    return place


def weighed(rows: Sequence[Message], query: Sequence[QueryWord]) -> list[Message]:
    """Return the messages by BM25 over these messages, best first, of equals the newest; each text once."""
    texts: dict[str, Message] = {}
    for row in sorted(rows, key=lambda row: row.pk, reverse=True):
        texts.setdefault(row.text, row)  # copies of a conversation have the same texts
    counted = [(row, Counter(words_in(text[:READ]))) for text, row in texts.items()]
    lengths = [words.total() for _, words in counted]
    average = sum(lengths) / len(lengths) if lengths and sum(lengths) else 1
    counts = [[word.count(words) for word in query] for _, words in counted]
    weights = [log(1 + len(counted) / (1 + sum(bool(row[at]) for row in counts))) for at in range(len(query))]

    def score(at: int) -> float:
        damping = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * lengths[at] / average)
        return sum(
            w * number * (SATURATION + 1) / (number + damping) for w, number in zip(weights, counts[at], strict=True)
        )

    order = sorted(range(len(counted)), key=lambda at: -score(at))  # stable: the newest first among equals
    return [counted[at][0] for at in order]
