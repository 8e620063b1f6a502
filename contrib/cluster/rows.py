"""`python -m contrib.cluster.rows URL` migrates, seeds, adds the model server at URL, and prints a token of the admin.

One process does all of it: each process that loads Django costs seconds of a busy machine.
"""

import os
import sys

import django
from django.core.management import call_command


def main(model_url: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    call_command("migrate", verbosity=0, interactive=False)
    call_command("seed", stdout=sys.stderr)
    options = {"base_url": model_url, "models": [("scripted", 128_000)], "tools": True, "default": True}
    call_command("provider", "Scripted", api_key="secret-of-the-scripted-provider", stdout=sys.stderr, **options)
    call_command("token", "admin", expires="never")


if __name__ == "__main__":
    main(sys.argv[1])
