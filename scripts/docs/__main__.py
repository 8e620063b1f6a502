"""`python -m scripts.docs` writes the tables that are generated from the code into the documentation."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from scripts.docs.pages import generated  # noqa: E402 - the API can be imported only after the set-up

for page, text in generated().items():
    page.write_text(text)
