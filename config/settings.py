"""One settings module for every environment; differences come from environment variables.

The variables are described in docs/operate/configuration.md.
"""

from pathlib import Path

import django_stubs_ext
import environ
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from config import service_urls
from config.embedded import paths
from core.time_zones import present_name

django_stubs_ext.monkeypatch()  # allows type parameters on field classes, as in TextField[str, str]

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.FileAwareEnv()  # every variable may also be set as NAME_FILE, the path of a file that holds it

DATA_DIR = paths.data_dir()
DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="") or paths.secret_key(DATA_DIR)
# Keys that encrypt provider keys, comma-separated; by default one derived from SECRET_KEY. Several keys allow rotation.
ENCRYPTION_KEYS = env.list("ENCRYPTION_KEYS", default=[SECRET_KEY])
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
# The origin of links in mails and webhooks, as in https://chat.example.org; without it see `core.net.site`.
SITE_URL = service_urls.site(env.str("SITE_URL", default=""))
CSRF_FAILURE_VIEW = "config.http.health.csrf_failed"
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "daphne",
    "config.apps.LeanUnfoldConfig",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "config.static_files.CollectedFilesConfig",
    "django.contrib.postgres",
    "django.contrib.humanize",
    "channels",
    "django_htmx",
    "allauth.account",
    "allauth.mfa",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "drf_standardized_errors",
    "core.audit",
    "core",
    "workspace",
    "llm",
    "accounts",
    "files",
    "personas",
    "projects",
    "projects.planner",
    "projects.saved_prompts",
    "chat",
    "chat.ledger",
    "chat.memory",
    "chat.readings",
    "chat.lab",
    "chat.runs",
    "workspace.administration",
    *(["contrib.ag_ui"] if env.bool("AG_UI", default=True) else []),
    "config",
]

MIDDLEWARE = [
    "config.http.middleware.RequestIdMiddleware",
    "config.http.middleware.OriginMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "config.static_files.CollectedFilesMiddleware",
    "config.http.middleware.PageCompressionMiddleware",
    "config.http.forms.ScriptedFormMiddleware",
    "config.http.middleware.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "config.http.middleware.UserPreferencesMiddleware",
    "config.http.middleware.CharsetMiddleware",
    "config.http.middleware.RequiredActionMiddleware",
    "config.http.middleware.ProductErrorMiddleware",
    "allauth.account.middleware.AccountMiddleware",  # its app does not start without it
]

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"

TEMPLATES: list[dict[str, object]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "workspace.look.template_context",
            ],
        },
    },
]

DATABASE_URL = env.str("DATABASE_URL", default="") or paths.database_url(DATA_DIR)
REDIS_URL = env.str("REDIS_URL", default="") or paths.redis_url(DATA_DIR)
# Off behind a pooler that gives each transaction another connection, as PgBouncer before 1.21 does.
PREPARED_STATEMENTS = env.bool("PREPARED_STATEMENTS", default=True)
# Off behind any pooler that changes connections: the next piece of a long result would be requested on another one.
SERVER_SIDE_CURSORS = env.bool("SERVER_SIDE_CURSORS", default=True)
# Seconds that one statement of a web process may take; 0 is no limit. See `config.web`.
STATEMENT_TIMEOUT = env.float("STATEMENT_TIMEOUT", default=0.0)
DATABASES = {
    "default": service_urls.database(DATABASE_URL, prepared=PREPARED_STATEMENTS, cursors=SERVER_SIDE_CURSORS),
}
# By default one Redis serves all purposes, in different databases. Streams and the broker must not lose data; the cache
# may lose anything.
STREAMS_URL = env.str("STREAMS_URL", default="") or service_urls.redis(REDIS_URL, service_urls.STREAMS_DB)
CACHE_URL = env.str("CACHE_URL", default="") or service_urls.redis(REDIS_URL, service_urls.CACHE_DB)
CHANNELS_URL = env.str("CHANNELS_URL", default="") or service_urls.redis(REDIS_URL, service_urls.CHANNELS_DB)
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": CACHE_URL,
        "OPTIONS": service_urls.CACHE_OPTIONS,
    },
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        # One retry on a new connection: a process without sockets notices a lost connection only at the next socket.
        "CONFIG": {"hosts": [{"address": CHANNELS_URL, "retry": Retry(NoBackoff(), 1)}]},
    },
}

CELERY_BROKER_URL = env.str("BROKER_URL", default="") or service_urls.broker(REDIS_URL)
CELERY_BROKER_CONNECTION_TIMEOUT = service_urls.BROKER_SECONDS
CELERY_BROKER_TRANSPORT_OPTIONS = service_urls.broker_options(CELERY_BROKER_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Acknowledged early on purpose: the sweeper finds the task of a dead worker by its row, not the broker by redelivery.
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A demoted Redis answers that it is read-only and keeps the connection. By default a Celery worker ends on such an
# answer, and its running turns end with it.
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
# A worker uses threads by default. All work that waits runs on the event loop; the threads only start it.
CELERY_WORKER_POOL = "threads"
CELERY_TASK_DEFAULT_QUEUE = "background"
CELERY_BEAT_SCHEDULE = {
    "forget-expired": {"task": "accounts.tasks.forget_expired", "schedule": 3600.0},
    "read-models": {"task": "llm.tasks.read_models", "schedule": 86_400.0, "options": {"expires": 3600.0}},
    "forget-requests": {"task": "chat.tasks.forget_requests", "schedule": 3600.0},
    "sweep-blobs": {"task": "files.tasks.sweep_blobs", "schedule": 15.0, "options": {"expires": 15.0}},
    "sweep-jobs": {"task": "core.tasks.sweep_jobs", "schedule": 5.0, "options": {"expires": 5.0}},
    "sweep-files": {"task": "files.tasks.sweep_files", "schedule": 5.0, "options": {"expires": 5.0}},
    "tidy-conversations": {"task": "chat.tasks.tidy_conversations", "schedule": 60.0, "options": {"expires": 60.0}},
    "begin-memory-passes": {"task": "chat.tasks.begin_memory_passes", "schedule": 300.0, "options": {"expires": 300.0}},
    "sum-usage": {"task": "chat.tasks.sum_usage", "schedule": 600.0, "options": {"expires": 600.0}},
    "sweep-turns": {"task": "chat.tasks.sweep_turns", "schedule": 5.0, "options": {"expires": 5.0}},
}

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["accounts.access.login.PasswordBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "accounts.access.passwords.LengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
PASSWORD_RESET_TIMEOUT = 7 * 86_400  # seconds that a link for a new password is valid
# django-allauth: the adapters of the product. Features that the product has itself are off. See decision 0047.
ACCOUNT_ADAPTER = "accounts.second_factors.adapter.AccountAdapter"
ACCOUNT_RATE_LIMITS = MFA_RATE_LIMITS = False  # `accounts.access.login_throttle` and `page_throttle` set the limits
ACCOUNT_AUTHENTICATED_LOGIN_REDIRECTS = False  # people who are signed in may sign in again
MFA_ADAPTER = "accounts.second_factors.adapter.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_WEBAUTHN_USER_VERIFICATION = "required"  # the device asks for its PIN or a fingerprint
MFA_ALLOW_UNVERIFIED_EMAIL = True  # the product stores addresses in `User.email`, which allauth does not verify
MFA_TOTP_TOLERANCE = 1  # steps of 30 seconds by which a phone's clock may be wrong
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "chat:home"
LOGOUT_REDIRECT_URL = "login"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("vi", "Tiếng Việt")]
FORMAT_MODULE_PATH = ["config.formats"]
LOCALE_PATHS = [DATA_DIR / "locale"]  # compiled there from locale/ at start, see config/apps.py
TIME_ZONE = present_name(env.str("TIME_ZONE", default="UTC"))
USE_I18N = True
USE_TZ = True

# The web server collects static files when it starts. With DEBUG they are served from their folders.
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = Path(env.str("STATIC_ROOT", default=str(DATA_DIR / "static")))
STORAGE_URL = env.str("STORAGE_URL", default="")
STORAGES = {
    "default": service_urls.storage(STORAGE_URL),
    # Readable by all: root collects the files when the image is built, and another user serves them.
    "staticfiles": {
        "BACKEND": "config.static_files.HashedStaticFiles",
        "OPTIONS": {"file_permissions_mode": 0o644, "directory_permissions_mode": 0o755},
    },
}

# Uploaded files, unless they are in a bucket. There is no MEDIA_URL: only views serve them.
MEDIA_ROOT = Path(service_urls.uploads(STORAGE_URL) or DATA_DIR / paths.UPLOADS)
FILE_UPLOAD_PERMISSIONS = 0o600
FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o700
MAX_UPLOAD_BYTES = env.int("MAX_UPLOAD_BYTES", default=100_000_000)
LIVE_TURNS = env.int("LIVE_TURNS", default=5)  # simultaneous answers per person; 0 sets no limit
CONNECTIONS_AT_ONCE = env.int("CONNECTIONS_AT_ONCE", default=100)  # sockets and streams per person and process
WAITING_TURNS = env.int("WAITING_TURNS", default=50)  # further turns per person, in the person's own queue
STORED_BYTES = env.int("STORED_BYTES", default=10_000_000_000)  # per person; 0 sets no limit
# Uploads are received on the same disk, since /tmp may be in memory.
FILE_UPLOAD_TEMP_DIR = MEDIA_ROOT
UPLOADS_AT_ONCE = env.int("UPLOADS_AT_ONCE", default=5)  # per person and web process

SESSION_ENGINE = "accounts.access.sessions"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Behind a TLS proxy: HTTPS_ONLY=true marks cookies secure, trusts X-Forwarded-Proto, redirects requests without TLS to
# https and has browsers remember that for a year (HSTS). Subdomains are left out, since other services may use them.
HTTPS_ONLY = env.bool("HTTPS_ONLY", default=False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS_ONLY
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS_ONLY else 0
SECURE_REDIRECT_EXEMPT = [r"^(livez|readyz|metrics)$"]  # monitoring requests these from inside, without the proxy
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]  # subdomains and preloading
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS_ONLY else None
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.access.authentication.TokenAuthentication",
        "accounts.access.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["core.json_bodies.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "config.api_docs.schema.Schema",
    "EXCEPTION_HANDLER": "config.http.problems.handle",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
# API calls per minute that one person and their programs may make, by kind; 0 is no limit.
API_RATES = {"chat": 6000, "files": 3000, "projects": 3000, "tasks": 3000, "admin": 600, "uploads": 600}
API_RATES |= {kind: int(calls) for kind, calls in env.dict("API_RATES", default={}).items()}

# The limits of `accounts.access.login_throttle`; 0 is no limit. Within 15 minutes: wrong passwords for one name at one
# address (name), wrong passwords at one address (address), and names that still have one try there (crowd). Within a
# day: wrong codes of one person (codes).
SIGN_IN_LIMITS = {"name": 10, "address": 50, "crowd": 300, "codes": 200}
SIGN_IN_LIMITS |= {kind: int(failures) for kind, failures in env.dict("SIGN_IN_LIMITS", default={}).items()}
# Per address and minute: requests for public pages, and failed or unfinished sign-ins; 0 is no limit.
PAGE_RATES = {"sign-in": 3000, "attempts": 600, "openid": 600, "shared": 120}
PAGE_RATES |= {kind: int(pages) for kind, pages in env.dict("PAGE_RATES", default={}).items()}
# The number of trusted proxies in front. Each appends its caller to X-Forwarded-For; 0 means to ignore the header.
TRUSTED_PROXIES = env.int("TRUSTED_PROXIES", default=0)

SPECTACULAR_SETTINGS = {
    "TITLE": "Glasshouse",
    "DESCRIPTION": "A self-hosted AI chat workspace that shows what the model sees. There are"
    " [examples](/api/examples/) to copy; the WebSocket is described [apart](/api/v1/asyncapi/).",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_NAME_OVERRIDES": {
        "MessageRole": "chat.models.Message.Role",
        "MemberRole": "accounts.models.Role",
        "EffortEnum": "llm.models.Effort",
        "LanguageEnum": LANGUAGES,
        "FactStatus": "chat.memory.models.Fact.Status",
        "ReadingStatus": "chat.readings.models.Reading.Status",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "config.api_docs.schema.complete",
        *(["contrib.ag_ui.openapi.complete"] if "contrib.ag_ui" in INSTALLED_APPS else []),
        "config.api_docs.generated_clients.complete",
    ],
    "GET_LIB_DOC_EXCLUDES": "config.api_docs.schema.classes_without_description",
    "COMPONENT_SPLIT_REQUEST": True,  # requests lack the fields that only responses have
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}


UNFOLD = {
    "SITE_TITLE": "workspace.look.title",
    "SITE_HEADER": "workspace.look.name",
    "SITE_ICON": "workspace.look.icon",
    "SITE_FAVICONS": [{"rel": "icon", "href": "workspace.look.icon"}],
    "STYLES": ["workspace.look.stylesheet"],
    "SCRIPTS": ["workspace.look.script"],
    "COLORS": "workspace.look.colours",
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": True,
    "LOGIN": {"form": "accounts.forms.AdminSignInForm"},
    "SIDEBAR": {"navigation": "config.admin.navigation"},
    "DASHBOARD_CALLBACK": "config.dashboard_admin.dashboard",
}

# The server through which the product mails invitations and links to choose a password. Without one it sends no mails.
EMAIL_URL = env.str("EMAIL_URL", default="")
_mail = service_urls.mail(EMAIL_URL)
EMAIL_HOST = _mail["HOST"]
EMAIL_PORT = _mail["PORT"]
EMAIL_HOST_USER = _mail["USER"]
EMAIL_HOST_PASSWORD = _mail["PASSWORD"]
EMAIL_USE_SSL = _mail["SSL"]
EMAIL_USE_TLS = _mail["TLS"]
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.str("EMAIL_FROM", default=_mail["FROM"])

LOG_LEVEL = env.str("LOG_LEVEL", default="INFO")
LOG_FORMAT = env.str("LOG_FORMAT", default="plain")  # or json
if LOG_FORMAT not in ("plain", "json"):
    raise paths.StartError("LOG_FORMAT must be plain or json.")
# The receivers of errors and traces. core/logs/sentry.py and tracing.py describe the data that is sent.
SENTRY_DSN = service_urls.sentry(env.str("SENTRY_DSN", default=""))
OTEL_EXPORTER_OTLP_ENDPOINT = service_urls.otlp(env.str("OTEL_EXPORTER_OTLP_ENDPOINT", default=""))
OTEL_EXPORTER_OTLP_HEADERS = env.str("OTEL_EXPORTER_OTLP_HEADERS", default="")
OTEL_TRACES_SAMPLER_ARG = env.float("OTEL_TRACES_SAMPLER_ARG", default=1.0)  # the share of traces that are sent
_handlers = ["console", *(["sentry"] if SENTRY_DSN else [])]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"()": "core.logs.lines.Formatter", "format": "%(levelname)s %(name)s: %(message)s"},
        "json": {"()": "core.logs.lines.JsonFormatter"},
    },
    "filters": {"refusals": {"()": "core.logs.lines.RefusalFilter"}},
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": LOG_FORMAT,
            "filters": ["refusals"],
            "stream": "ext://sys.stderr",
        },
        **({"sentry": {"()": "core.logs.sentry.handler", "dsn": SENTRY_DSN}} if SENTRY_DSN else {}),
    },
    "root": {"handlers": _handlers, "level": LOG_LEVEL},
    "loggers": {
        "django": {"handlers": _handlers, "level": LOG_LEVEL, "propagate": False},
        "django.server": {"handlers": _handlers, "level": LOG_LEVEL, "propagate": False},
        "daphne": {"level": "WARNING"},
        "celery": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        "httpx2": {"level": "WARNING"},
        "mcp.server": {"level": "WARNING"},  # it has three lines about each request to /mcp/
    },
}

# The token for the metrics. Web processes serve them at /metrics, a worker at METRICS_PORT.
METRICS_TOKEN = env.str("METRICS_TOKEN", default="")
METRICS_PORT = env.int("METRICS_PORT", default=0)
if METRICS_PORT and not METRICS_TOKEN:
    raise paths.StartError("METRICS_PORT needs METRICS_TOKEN, so that not everybody can read the metrics.")

# A file that a worker touches while it accepts work; empty: none.
ALIVE_FILE = env.str("ALIVE_FILE", default="")

# Days after which entries of the audit are deleted; 0 keeps them forever.
AUDIT_DAYS = env.int("AUDIT_DAYS", default=0)
# Days after which conversations from requests in OpenAI's protocol are deleted; 0 keeps them forever.
API_CONVERSATION_DAYS = env.float("API_CONVERSATION_DAYS", default=30.0)
# Simultaneous answers in one worker process, including those that wait for a model or a person. Further turns wait, or
# another worker takes them. Each answer holds a connection, and a process may often open only 1,024 files.
TURNS_PER_WORKER = env.int("TURNS_PER_WORKER", default=800)
# Seconds that a process has to finish its work after SIGTERM. The program that stops it must wait longer.
DRAIN_SECONDS = env.float("DRAIN_SECONDS", default=120.0)
# Seconds that a tool call waits for its user's approval.
APPROVAL_SECONDS = env.float("APPROVAL_SECONDS", default=600.0)
# Whether webhooks may use private network addresses and any port.
WEBHOOK_ALLOW_PRIVATE = env.bool("WEBHOOK_ALLOW_PRIVATE", default=False)
BUNDLED_MODEL_URL = env.str("BUNDLED_MODEL_URL", default="")
BUNDLED_MODEL_KEY = env.str("BUNDLED_MODEL_KEY", default="")
