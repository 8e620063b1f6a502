"""List what membership in a group of people gives, for reports of commands."""

from django.db.models import Q

from accounts.models import PeopleGroup


def effects_of(group: PeopleGroup) -> tuple[str, ...]:
    """Return what the members of a group have or must obey, in words. Empty if membership changes nothing.

    Rows that name the group, such as limits and shares, are read from the relations of the model, so that a kind of
    rows that is added later counts, too.
    """
    effects = {
        "models": group.all_models or group.allowed_models.exists(),
        "tool servers": group.all_tool_servers or group.allowed_tool_servers.exists(),
        "rights": bool(group.may),
        "days that conversations are kept": group.conversation_days is not None,
    }
    for relation in PeopleGroup._meta.related_objects:
        rows = relation.related_model._base_manager.filter(Q((relation.field.name, group)))
        effects[str(relation.related_model._meta.verbose_name_plural)] = rows.exists()
    return tuple(name for name, applies in effects.items() if applies)
