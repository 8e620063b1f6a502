"""`/api/v1/workspace/`: the workspace's settings for administrators' programs."""

from typing import Any, ClassVar

from django.conf import settings
from django.urls import reverse
from django.utils.translation import gettext
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access.api_views import ScopedView
from core.api.fields import StrictSerializer, validate
from core.permissions import require_right
from personas.models import BudgetProfile
from personas.services import default_profile
from workspace import services as workspace
from workspace.administration.services import save_settings
from workspace.models import Workspace


class WorkspaceSerializer(StrictSerializer, serializers.ModelSerializer[Workspace]):
    name = serializers.CharField(required=False, max_length=Workspace.MAX_NAME)
    accent = serializers.RegexField(
        r"^#[0-9a-fA-F]{6}$",
        max_length=len("#0f6b5c"),
        required=False,
        allow_blank=True,
        help_text="Such as #0f6b5c; empty: the default.",
    )
    notice = serializers.CharField(required=False, allow_blank=True, max_length=Workspace.MAX_NOTICE)
    about = serializers.CharField(required=False, allow_blank=True, max_length=Workspace.MAX_ABOUT)
    suggestions = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=Workspace.MAX_SUGGESTIONS * (Workspace.MAX_SUGGESTION + 2),
        help_text="Messages that the empty page suggests, one per line, at most four. Empty: the product's own.",
    )
    languages = serializers.ListField(
        child=serializers.ChoiceField(settings.LANGUAGES),
        required=False,
        min_length=1,
        max_length=len(settings.LANGUAGES),
    )
    logo = serializers.SerializerMethodField(help_text="Its address; null without a logo. PUT a logo to logo/.")
    default_profile = serializers.PrimaryKeyRelatedField[BudgetProfile](
        queryset=BudgetProfile.objects.all(),
        required=False,
        allow_null=True,
        help_text="The budget profile of personas that name none; null if there is no profile.",
    )
    layout = serializers.ChoiceField(
        BudgetProfile.Layout.choices, required=False, help_text="The order of the prompt in the default profile."
    )

    class Meta:
        model = Workspace
        fields: ClassVar = [*workspace.FIELDS, "default_profile", "layout", "logo"]

    def validate_default_profile(self, profile: BudgetProfile | None) -> BudgetProfile:
        if profile is None:
            raise serializers.ValidationError(gettext("Name the profile that replaces the default."))
        return profile

    def get_logo(self, row: Workspace) -> str | None:
        return reverse("logo", args=[row.logo_name]) if row.logo_name else None

    def to_representation(self, instance: Any) -> Any:
        profile = default_profile()
        instance.default_profile = profile if not profile._state.adding else None
        instance.layout = profile.layout
        return super().to_representation(instance)


class LogoSerializer(StrictSerializer):
    file = serializers.FileField(help_text="PNG, JPEG or WebP, at most 2 MB.")


class WorkspaceView(ScopedView):
    """The settings of the workspace, for administrators with the right to change them."""

    scope = "admin"

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require_right(self.person, "view", Workspace)

    @extend_schema(responses=WorkspaceSerializer)
    def get(self, request: Request) -> Response:
        """Return the settings of the workspace."""
        return self._shown()

    @extend_schema(request=WorkspaceSerializer, responses=WorkspaceSerializer)
    def patch(self, request: Request) -> Response:
        """Change the settings in the request. They apply to everyone at once."""
        require_right(self.person, "change", Workspace)
        body = WorkspaceSerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        save_settings(user=self.person, fields=body.validated_data)
        return self._shown()

    def _shown(self) -> Response:
        row = Workspace.objects.first() or Workspace()
        return Response(WorkspaceSerializer(row).data)


class LogoView(WorkspaceView):
    parser_classes = (MultiPartParser,)
    http_method_names = ("put", "delete", "options")

    @extend_schema(request={"multipart/form-data": LogoSerializer}, responses=WorkspaceSerializer)
    def put(self, request: Request) -> Response:
        """Store the picture beside the workspace's name, as a PNG of at most 256 × 256 pixels."""
        require_right(self.person, "change", Workspace)
        workspace.set_logo(user=self.person, picture=validate(LogoSerializer, request)["file"])
        return self._shown()

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request) -> Response:
        """Remove the picture."""
        workspace.set_logo(user=self.person, picture=None)
        return Response(status=status.HTTP_204_NO_CONTENT)
