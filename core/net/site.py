"""The address of this site for links in mails and webhooks.

A link in a mail contains a key to an account. The sender of the request chooses the Host header, so the header alone
must not decide the target of the link: `ALLOWED_HOSTS` checks hosts, but not ports.
"""

from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port

_DEFAULT_PORTS = {"http": "80", "https": "443"}


def site_origin(request: HttpRequest) -> str:
    """Return `SITE_URL`, else the scheme and host of the request, with the port if it is known to be this site's.

    A port is known if it is in `CSRF_TRUSTED_ORIGINS`, or if this process listens at it and no proxy is in front. Any
    other port is left out.
    """
    if settings.SITE_URL:
        return str(settings.SITE_URL)
    host = request.get_host()
    domain, port = split_domain_port(host)
    scheme = request.scheme or "http"
    is_ours = f"{scheme}://{host}" in settings.CSRF_TRUSTED_ORIGINS or (
        not settings.TRUSTED_PROXIES and port == request.META.get("SERVER_PORT")
    )
    if port and is_ours and port != _DEFAULT_PORTS.get(scheme):
        return f"{scheme}://{host}"
    return f"{scheme}://{domain}"
