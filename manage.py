#!/usr/bin/env python
import os
import sys

from django.core.management import execute_from_command_line

from config.embedded.paths import StartError

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        execute_from_command_line(sys.argv)
    except StartError as error:
        sys.exit(str(error))
