"""Software bill of materials in CycloneDX 1.6, from the lock file and the installed metadata."""

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ENTRY = re.compile(r"\n(?=[A-Za-z0-9])")


def locked_versions(lock_file: Path) -> dict[str, str]:
    """Return the version of each package of a lock file that Linux needs, by canonical name."""
    found: dict[str, str] = {}
    for entry in _ENTRY.split(lock_file.read_text()):
        requirement = Requirement(entry.partition("\\\n")[0].strip())
        if requirement.marker is None or _needed(requirement):
            (specifier,) = requirement.specifier
            found[canonicalize_name(requirement.name)] = specifier.version
    return found


def _needed(requirement: Requirement) -> bool:
    assert requirement.marker is not None
    return requirement.marker.evaluate({"sys_platform": "linux", "platform_system": "Linux"})


def sbom(version: str, dependencies: Mapping[str, str]) -> str:
    """Return the document: onejob with the locked versions of its dependencies."""
    own = _component("onejob", version, "application")
    components = [_component(name, dependencies[name], "library") for name in sorted(dependencies)]
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # Derived from the content instead of random: equal input gives equal bytes.
        "serialNumber": f"urn:uuid:{_serial([own, *components])}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": sorted(_required("onejob", dependencies))},
            *(
                {
                    "ref": _reference(name, dependencies[name]),
                    "dependsOn": sorted(_required(name, dependencies)),
                }
                for name in sorted(dependencies)
            ),
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _component(name: str, version: str, kind: str) -> dict[str, Any]:
    reference = _reference(name, version)
    component = {
        "type": kind, "bom-ref": reference, "name": name, "version": version, "purl": reference,
    }  # fmt: skip
    expression = metadata.metadata(name).json.get("license_expression")
    return component | ({"licenses": [{"expression": expression}]} if expression else {})


def _required(name: str, dependencies: Mapping[str, str]) -> set[str]:
    wanted = map(Requirement, metadata.requires(name) or ())
    return {
        _reference(required, dependencies[required])
        for requirement in wanted
        if (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
        and (required := canonicalize_name(requirement.name)) in dependencies
    }


def _reference(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _serial(components: list[dict[str, Any]]) -> uuid.UUID:
    digest = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).digest()
    return uuid.UUID(bytes=digest[:16], version=5)
