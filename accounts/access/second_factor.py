"""Checks whether a person has a second factor, and whether the workspace requires one."""

from allauth.mfa.models import Authenticator

from accounts.models import User
from workspace.models import Workspace

FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)  # recovery codes only stand in for these


def has_second_factor(user: User) -> bool:
    return bool(Authenticator.objects.filter(user=user, type__in=FACTORS).exists())


def is_required(user: User, workspace: Workspace) -> bool:
    """Return whether the workspace requires a second factor of this person."""
    if workspace.second_factor == Workspace.SecondFactor.ADMINISTRATORS:
        return user.is_staff or user.is_superuser
    return workspace.second_factor == Workspace.SecondFactor.EVERYBODY


def must_set_up(user: User, workspace: Workspace) -> bool:
    """Return whether this person lacks a second factor that the workspace requires."""
    return is_required(user, workspace) and not has_second_factor(user)
