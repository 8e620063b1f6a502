"""Erase a person: delete all their rows, files and streams. The audit log then names them only by id.

1. The account is deactivated and signed out, and running answers are stopped. If an answer is still running, the
   erasure ends with `still_answering`.
2. Their rows are deleted in one transaction, which records the erasure.
3. After the commit their files and streams are deleted.

Texts that other people have written about them, or quoted from their files, stay with those people. To keep projects
and personas, hand them over first.
"""

from functools import partial

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import AbstractUser
from django.contrib.contenttypes.models import ContentType
from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import Q

from accounts.models import User
from accounts.services import end_all, require_another_admin, require_deletable, require_no_hold
from chat.models import Conversation, Import, Turn
from chat.realtime.turn_stream import delete_streams
from chat.turns.services import stop_turn
from core.audit.services import record_erasure
from core.errors import ProductError
from core.sentences import Sentence
from files.models import File
from files.storage import release
from personas.services import delete_reminders_of_user
from projects.models import Invitation


def erase_person(*, user: AbstractUser | None, person: User) -> None:
    """Erase a person. `user` is None for a command on the server.

    Raises the errors of `require_deletable`, `yourself` (409), `legal_hold` (409), and `still_answering` (409) while an
    answer for the person is being stopped. In the last case the account is already deactivated.
    """
    if user is None:
        require_another_admin(person)
    elif user.pk == person.pk:
        raise ProductError("yourself", "You cannot erase your own account. Ask another administrator.", status=409)
    else:
        require_deletable(user, person)
    require_no_hold(person)
    with transaction.atomic():
        User.objects.filter(pk=person.pk).update(is_active=False)
        end_all(person)
    _require_quiet(person)
    with transaction.atomic():
        files = list(File.objects.filter(owner=person).values_list("sha256", flat=True))
        uploads = list(Import.objects.filter(owner=person).exclude(blob="").values_list("blob", flat=True))
        turns = list(Turn.objects.filter(conversation__owner=person).values_list("pk", flat=True))
        conversation_count = Conversation.objects.filter(owner=person).count()
        tokens = list(person.api_tokens.values_list("pk", flat=True))
        changes = {"conversations": conversation_count, "files": len(files)}
        record_erasure(user=user, person=person, tokens=tokens, changes=changes)
        _delete(person)
        transaction.on_commit(partial(_release, set(files), uploads))
        transaction.on_commit(partial(delete_streams, turns))


def _require_quiet(person: User) -> None:
    live = list(Turn.objects.live().filter(conversation__owner=person).select_related("conversation"))
    for turn in live:
        stop_turn(user=person, turn=turn)
    if live:
        sentence = Sentence("An answer for this person is still being stopped. Try again in a minute.")
        raise ProductError("still_answering", sentence, status=409)


def _delete(person: User) -> None:
    delete_reminders_of_user(person)
    Invitation.objects.filter(Q(person=person) | Q(username=person.get_username())).delete()
    kind = ContentType.objects.get_for_model(User)
    LogEntry.objects.filter(content_type=kind, object_id=str(person.pk)).delete()
    person.delete()


def _release(files: set[str], uploads: list[str]) -> None:
    for sha256 in files:
        release(sha256)
    for name in uploads:
        default_storage.delete(name)
