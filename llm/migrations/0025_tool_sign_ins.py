import django.db.models.deletion
import uuid_utils.compat
from django.conf import settings
from django.db import migrations, models

import core.crypto
import llm.models.provider

ADDRESS = 2000


def persons_tool() -> list[tuple[str, models.Field]]:
    """Return the columns that sign-ins and grants share."""
    return [
        ("id", models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
        ("address", models.CharField(max_length=ADDRESS)),
        ("issuer", models.CharField(max_length=ADDRESS)),
        ("token_endpoint", models.CharField(max_length=ADDRESS)),
        ("revocation_endpoint", models.CharField(blank=True, default="", max_length=ADDRESS)),
        ("resource", models.CharField(blank=True, default="", max_length=ADDRESS)),
        ("scope", models.CharField(blank=True, default="", max_length=ADDRESS)),
        ("client_id", models.CharField(max_length=ADDRESS)),
        ("client_secret", core.crypto.EncryptedTextField(blank=True, default="")),
        ("auth_method", models.CharField(max_length=40)),
        ("created", models.DateTimeField(auto_now_add=True)),
        (
            "tool_server",
            models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="%(class)ss", to="llm.toolserver"
            ),
        ),
        (
            "user",
            models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
    ]


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("llm", "0024_openapi_documents"),
    ]

    operations = [
        migrations.AddField(
            model_name="toolserver",
            name="access",
            field=models.CharField(
                choices=[
                    ("none", "Nobody signs in"),
                    ("header", "The workspace, with the secret below"),
                    ("person", "Each person, at the server (OAuth)"),
                ],
                db_default="header",
                default="header",
                help_text="With OAuth, each person signs in to the server once, and its tools act with this person's rights there.",
                max_length=10,
                verbose_name="who signs in",
            ),
        ),
        migrations.AddField(
            model_name="toolserver",
            name="client_id",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Of the client that you made at the sign-in server; enter its secret below. Empty: Glasshouse registers itself there.",
                max_length=500,
                verbose_name="client ID",
            ),
        ),
        migrations.AddField(
            model_name="toolserver",
            name="issuer",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="The address of the sign-in server. Enter it with a client ID, if it is in a private network, or if the tool server does not name it.",
                max_length=200,
                validators=[llm.models.provider.validate_base_url],
                verbose_name="issuer of the sign-in",
            ),
        ),
        migrations.AddField(
            model_name="toolserver",
            name="scope",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Scopes of OAuth with spaces between them. Empty: as the server wants.",
                max_length=500,
                verbose_name="permissions to ask for",
            ),
        ),
        migrations.AddField(
            model_name="toolserver",
            name="sign_in",
            field=models.JSONField(editable=False, null=True),
        ),
        migrations.AddConstraint(
            model_name="toolserver",
            constraint=models.CheckConstraint(
                condition=models.Q(("access", "person"), ("kind", "stdio"), _negated=True),
                name="tool_server_sign_in_over_http",
                violation_error_message="People can sign in to servers only, not to a process. Choose another access.",
            ),
        ),
        migrations.CreateModel(
            name="ToolClient",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("issuer", models.CharField(max_length=ADDRESS)),
                ("redirect_uri", models.CharField(max_length=ADDRESS)),
                ("client_id", models.CharField(max_length=ADDRESS)),
                ("client_secret", core.crypto.EncryptedTextField(blank=True, default="")),
                ("auth_method", models.CharField(max_length=40)),
                ("scope", models.CharField(blank=True, default="", max_length=ADDRESS)),
                ("secret_expires", models.DateTimeField(null=True)),
                ("created", models.DateTimeField(auto_now_add=True)),
                (
                    "tool_server",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="clients", to="llm.toolserver"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tool_server", "issuer", "redirect_uri"), name="one_client_per_authorization_server"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ToolGrant",
            fields=[
                *persons_tool(),
                ("access_token", core.crypto.EncryptedTextField()),
                ("refresh_token", core.crypto.EncryptedTextField(blank=True, default="")),
                ("expires", models.DateTimeField(null=True)),
                ("version", models.PositiveIntegerField(default=0)),
                ("refreshing", models.DateTimeField(null=True)),
                (
                    "ended",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("expired", "The sign-in has expired."),
                            ("revoked", "The server has ended the sign-in."),
                        ],
                        default="",
                        max_length=10,
                    ),
                ),
                ("missing_scope", models.CharField(blank=True, default="", max_length=ADDRESS)),
                ("last_used", models.DateTimeField(null=True)),
                ("tools", models.JSONField(null=True)),
                ("problems", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "tool_server"), name="one_tool_grant_per_person")
                ],
            },
        ),
        migrations.CreateModel(
            name="ToolSignIn",
            fields=[
                *persons_tool(),
                ("state", models.CharField(max_length=64, unique=True)),
                ("session", models.CharField(blank=True, default="", max_length=64)),
                ("verifier", core.crypto.EncryptedTextField()),
                ("redirect_uri", models.CharField(max_length=ADDRESS)),
                ("then", models.CharField(blank=True, default="", max_length=ADDRESS)),
                ("iss_required", models.BooleanField(default=False)),
            ],
            options={
                "indexes": [models.Index(fields=["user", "created"], name="tool_sign_in_of_user")],
            },
        ),
    ]
