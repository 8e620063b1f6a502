"""`python -m config.embedded.prepare`: migrations and seed in one process.

It loads Django, then waits for the end of its input: the supervisor closes that when the services answer. stdout is
what `manage.py seed` says: one line of JSON.
"""

import gc
import os
import sys

import django
from django.core.management import call_command


def main() -> None:
    gc.disable()  # a short life
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    sys.stdin.read()
    call_command("migrate", interactive=False, verbosity=0)
    call_command("seed")


if __name__ == "__main__":
    main()
