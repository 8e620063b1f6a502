#!/usr/bin/env python
import os
import sys
from getpass import getuser

from django.core.management import execute_from_command_line

from config.embedded.paths import StartError
from config.management.commands.up import Command as Up
from core.audit.origin import How, Origin, use_origin

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        if sys.argv[1:2] == ["up"]:  # it only starts others: loading every app first would hold all of them up
            Up().run_from_argv(sys.argv)
        else:
            with use_origin(Origin(How.COMMAND, name=getuser())):
                execute_from_command_line(sys.argv)
    except StartError as error:
        sys.exit(str(error))
