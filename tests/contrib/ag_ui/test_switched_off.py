"""Without its app the product has no AG-UI, and everything else as before."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.product import ROOT

PROGRAM = """
import json, sys
import django
django.setup()
from django.core.management import call_command
from django.urls import Resolver404, resolve
from drf_spectacular.generators import SchemaGenerator
call_command("check", fail_level="WARNING")
try:
    name = resolve("/api/v1/ag-ui/").url_name
except Resolver404:
    name = ""
document = SchemaGenerator().get_schema(public=True)
json.dump({"name": name, "document": document, "loaded": "ag_ui" in sys.modules}, sys.stdout, default=str)
"""


def product(**environment: str) -> dict[str, Any]:
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", **environment},
        capture_output=True,
        text=True,
    )
    assert program.returncode == 0, program.stderr
    facts: dict[str, Any] = json.loads(program.stdout.splitlines()[-1])
    return facts


@pytest.mark.process
def test_without_the_app_its_address_is_gone_and_nothing_else() -> None:
    on, off = product(), product(AG_UI="off")
    assert (on["name"], on["loaded"]) == ("ag-ui", True)
    assert (off["name"], off["loaded"]) == ("", False)
    paths = on["document"]["paths"]
    paths.pop("/api/v1/ag-ui/")
    assert off["document"]["paths"] == paths
    all_schemas, schemas = (each["document"]["components"]["schemas"] for each in (on, off))
    assert schemas == {name: all_schemas[name] for name in schemas}
    assert not any(name.startswith("AgUi") for name in schemas)
    assert set(re.findall(r"#/components/schemas/(\w+)", json.dumps(off["document"]))) <= schemas.keys()
