"""Validation of webhook configurations, with upstream's messages."""

from pathlib import Path
from typing import Any

import pytest

from onejob.api.service import Service
from onejob.wire.errors import Invalid
from tests.api.service_support import PERSON, served
from tests.webhooks.support import Hook, a_webhook

_RULE: dict[str, Any] = {
    "operations": ["CREATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
}


def _url(url: str) -> dict[str, Any]:
    return {"clientConfig": {"url": url}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "short"}, "webhooks[0].name: Invalid value: \"short\": should be a domain with "
         "at least three segments separated by dots"),
        ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value "
         "must be between 1 and 30 seconds"),
        ({"failurePolicy": "Maybe"}, 'webhooks[0].failurePolicy: Unsupported value: "Maybe": '
         'supported values: "Fail", "Ignore"'),
        ({"admissionReviewVersions": ["v9"]}, "must include at least one of v1, v1beta1"),
        (_url("http://x"), "'https' is the only allowed URL scheme"),
        (_url("https://u:p@x"), "user information is not permitted in the URL"),
        (_url("https://x?a=b"), "query parameters are not permitted in the URL"),
        (_url("https://x#f"), "fragments are not permitted in the URL"),
        ({"clientConfig": {"service": {"name": "a", "namespace": "b", "port": 70000}}},
         "port is not valid: must be between 1 and 65535, inclusive"),
        ({"rules": [{**_RULE, "operations": ["READ"]}]},
         'webhooks[0].rules[0].operations[0]: Unsupported value: "READ"'),
        ({"rules": [{**_RULE, "operations": ["*", "CREATE"]}]},
         "if '*' is present, must not specify other operations"),
        ({"rules": [{**_RULE, "scope": "Galaxy"}]},
         "webhooks[0].rules[0].scope: Unsupported value"),
        ({"rules": [{**_RULE, "resources": []}]}, "webhooks[0].rules[0].resources: Required value"),
        ({"matchConditions": [{"name": "a", "expression": "object."}]},
         "webhooks[0].matchConditions[0].expression: Invalid value"),
        ({"matchConditions": [{"name": "a", "expression": "1"}]},
         "must evaluate to bool but got int"),
    ],
)  # fmt: skip
def test_a_faulty_configuration_is_refused(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    async def test(service: Service) -> None:
        kind = service.kinds.by_resource[
            "validatingwebhookconfigurations.admissionregistration.k8s.io"
        ]
        webhook = {**a_webhook(Hook(1, "")), **fields}
        body = {"metadata": {"name": "c"}, "webhooks": [webhook]}
        with pytest.raises(Invalid) as refusal:
            await service.create(kind, "", body, PERSON)
        assert message in refusal.value.message

    served(tmp_path, test)
