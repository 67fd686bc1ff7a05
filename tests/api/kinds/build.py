"""Small documents for the tests of this folder, and the service's steps on them."""

import copy
from typing import Any

from onejob.api.kinds import strategy_for
from onejob.api.strategy import Document, Strategy
from onejob.gates import FeatureGates
from onejob.wire.kinds import BY_RESOURCE
from tests import build

UID = "0d8e2e5e-1f7b-4f0e-9d0a-5f4dcc3b5aa7"
METADATA = {"namespace": "default", "uid": UID}


def strategy(resource: str, **gates: bool) -> Strategy:
    return strategy_for(BY_RESOURCE[resource], FeatureGates(gates))


def a_container(**fields: Any) -> Document:
    return {"name": "main", "image": "busybox:1", **fields}


def a_template(**spec: Any) -> Document:
    return build.template(a_container(), **spec)


def a_job(name: str = "j", *, template: Document | None = None, **spec: Any) -> Document:
    pods = a_template() if template is None else template
    return build.a_job(name, metadata=METADATA, template=pods, **spec)


def a_cronjob(name: str = "c", *, job: Document | None = None, **spec: Any) -> Document:
    jobs = {"template": a_template(), **(job or {})}
    return build.a_cronjob(name, metadata=METADATA, job=jobs, **spec)


def a_pod(name: str = "p", **spec: Any) -> Document:
    return build.a_pod(name, a_container(), metadata=METADATA, **spec)


def create(kind: Strategy, doc: Document) -> tuple[Document, list[str]]:
    """Return the document as it would be stored, and its validation errors."""
    doc = copy.deepcopy(doc)
    kind.default(doc)
    kind.prepare_create(doc)
    errors = [str(error) for error in kind.validate_create(doc)]
    kind.default(doc)
    return doc, errors


def created(kind: Strategy, doc: Document) -> Document:
    stored, errors = create(kind, doc)
    assert not errors
    return stored


def update(kind: Strategy, old: Document, **changes: Any) -> tuple[Document, list[str]]:
    """Change fields of the spec (None removes one); return the new document and its errors."""
    new = copy.deepcopy(old)
    for field, value in changes.items():
        if value is None:
            new["spec"].pop(field, None)
        else:
            new["spec"][field] = value
    return update_to(kind, old, new)


def update_to(kind: Strategy, old: Document, new: Document) -> tuple[Document, list[str]]:
    untouched = copy.deepcopy(old)
    new = copy.deepcopy(new)
    kind.default(new)
    kind.prepare_update(new, old)
    errors = [str(error) for error in kind.validate_update(new, old)]
    assert old == untouched, "a strategy changed the stored object"
    return new, errors


def update_status(kind: Strategy, old: Document, status: dict[str, Any]) -> list[str]:
    new = {**copy.deepcopy(old), "status": copy.deepcopy(status)}
    kind.default(new)
    kind.prepare_status_update(new, old)
    return [str(error) for error in kind.validate_status_update(new, old)]
