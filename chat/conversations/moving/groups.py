"""Decide which groups of people the moved people join, and report it.

A name in another product must give no rights here. So people join a group that exists here only if its members get
nothing from it, or if the operator chose it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from django.db import transaction

from accounts.groups.effects import effects_of
from accounts.groups.services import add_members, save_group
from accounts.models import PeopleGroup, User
from chat.conversations.moving.sources import WrongChoice

JOIN_HELP = (
    "let the members of these groups join the groups of the same names here, although their members have models, "
    "rights, limits or shares. Other groups of this kind are not joined"
)


class JoinRule(Enum):
    """Why people join a group, or why they do not. The values are words for the report."""

    NEW = "it is new, and gives no rights"
    PLAIN = "it gives no rights"
    CHOSEN = "chosen by --join"
    EVERYONE = "everybody is in it"
    CLAIM = "it follows a claim, so the identity provider decides who is in it"
    GIVES = "its members have"

    @property
    def joins(self) -> bool:
        return self in (JoinRule.NEW, JoinRule.PLAIN, JoinRule.CHOSEN)


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """A decision about one group. `effects`: what its members have, in words."""

    rule: JoinRule
    effects: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        return f"{self.rule.value} {', '.join(self.effects)}" if self.rule is JoinRule.GIVES else self.rule.value


class GroupChoice:
    """The groups that the operator `chose` by name, and the decisions about all groups of the source.

    Raises `WrongChoice` if a chosen group is not here.
    """

    def __init__(self, chose: Iterable[str] = ()) -> None:
        self._chosen = {clean_group_name(name) for name in chose}
        here = set(PeopleGroup.objects.filter(name__in=self._chosen).values_list("name", flat=True))
        if missing := sorted(self._chosen - here):
            names = ", ".join(f"“{name}”" for name in missing)
            raise WrongChoice(f"There is no group of people {names} here. Make it first, or correct --join.")
        self._decisions: dict[str, GroupDecision] = {}
        self._people: Counter[str] = Counter()

    def look(self, user: User | None, names: Iterable[str]) -> None:
        """Note what `join` would do. `user` is None for an account that is not made yet."""
        for name in _distinct(names):
            group = PeopleGroup.objects.filter(name=name).first()
            self._note(name, group, user)

    @transaction.atomic
    def join(self, user: User, names: Iterable[str]) -> None:
        """Put a person into the groups with these names, as far as they may join. A missing group is made."""
        for name in _distinct(names):
            group = PeopleGroup.objects.select_for_update().filter(name=name).first()
            if not self._note(name, group, user).rule.joins:
                continue
            if group is None:
                group = save_group(user=None, group=None, fields={"name": name})
            add_members(user=None, group=group, people=[user])

    def lines(self) -> Iterator[str]:
        """Yield a line for each group of the source: the number of people, whether they join, and why."""
        for name, decision in sorted(self._decisions.items()):
            count = self._people[name]
            people = "1 person" if count == 1 else f"{count:,} people"
            verb = "joins" if count == 1 else "join"
            if not decision.rule.joins:
                verb = f"{'does' if count == 1 else 'do'} not join"
            hint = f". To let them join, add: --join “{name}”" if decision.rule is JoinRule.GIVES else ""
            yield f"Group “{name}”: {people} {verb}: {decision.reason}{hint}"

    def _note(self, name: str, group: PeopleGroup | None, user: User | None) -> GroupDecision:
        """Decide about a group, and count the person unless they are in it already."""
        decision = self._decide(name, group)
        earlier = self._decisions.get(name)
        if earlier is None or (earlier.rule.joins and not decision.rule.joins):
            self._decisions[name] = decision
        is_member = group is not None and user is not None and group.members.filter(pk=user.pk).exists()
        self._people[name] += not is_member
        return decision

    def _decide(self, name: str, group: PeopleGroup | None) -> GroupDecision:
        if group is None:
            return GroupDecision(JoinRule.NEW)
        if group.everyone:
            return GroupDecision(JoinRule.EVERYONE)
        if group.claim:
            return GroupDecision(JoinRule.CLAIM)
        if name in self._chosen:
            return GroupDecision(JoinRule.CHOSEN)
        effects = effects_of(group)
        return GroupDecision(JoinRule.GIVES, effects) if effects else GroupDecision(JoinRule.PLAIN)


def clean_group_name(name: str) -> str:
    """Return the name as groups here have it: without double spaces, and cut to the longest name."""
    return " ".join(name.split())[: PeopleGroup.MAX_NAME].strip()


def _distinct(names: Iterable[str]) -> Iterator[str]:
    return iter(dict.fromkeys(filter(None, map(clean_group_name, names))))
