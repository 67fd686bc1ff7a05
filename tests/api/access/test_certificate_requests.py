"""CertificateSigningRequests: from the request to a connection with the issued certificate."""

import asyncio
import base64
import ssl
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from onejob.api.access.certificates import key_pem, new_key
from onejob.planning.certificates import CLIENT_SIGNER, SERVING_SIGNER
from tests.api.access.certificate_requests_support import a_request
from tests.api.http.raw_requests import Requests, a_server, with_requests
from tests.e2e.serving import KUBECTL, needs_kubectl

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
APPROVED = {"type": "Approved", "status": "True", "reason": "Test", "message": "by hand"}
MERGE = "application/merge-patch+json"


async def approve(ask: Requests, name: str = "r", **options: Any) -> tuple[int, Any]:
    body = {"status": {"conditions": [APPROVED]}}
    return await ask("PATCH", f"{PATH}/{name}/approval", body, content_type=MERGE, **options)


async def issued(ask: Requests, name: str = "r") -> x509.Certificate:
    found = await ask.until(f"{PATH}/{name}", lambda r: "certificate" in r.get("status", {}))
    return x509.load_pem_x509_certificate(base64.b64decode(found["status"]["certificate"]))


async def failure(ask: Requests, name: str = "r") -> str:
    def last(found: Any) -> Any:
        conditions = found.get("status", {}).get("conditions") or [{}]
        return conditions[-1] if conditions[-1].get("type") == "Failed" else None

    found = last(await ask.until(f"{PATH}/{name}", last))
    assert found["reason"] == "SignerValidationFailure"
    return str(found["message"])


def test_an_issued_client_certificate_signs_its_user_in(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        key = new_key()
        document = a_request("r", "alice", "devs", key=key, expirationSeconds=3600)
        made = await ask.ok("POST", f"{PATH}?fieldValidation=Strict", document)
        assert ask.warnings == []
        assert made["spec"]["username"] == "onejob-admin"
        assert (await approve(ask))[0] == 200
        certificate = await issued(ask)
        life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert life.total_seconds() == 3600 + 300
        file = tmp_path / "alice.pem"
        file.write_bytes(certificate.public_bytes(Encoding.PEM) + key_pem(key))
        context = ssl._create_unverified_context()
        context.load_cert_chain(file)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(ask.server.url, connector=connector) as session:
            review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
            async with session.post(review, json={}) as answer:
                user = (await answer.json())["status"]["userInfo"]
        assert user["username"] == "alice"
        assert "devs" in user["groups"]

    with_requests(tmp_path, test)


def test_a_serving_certificate_has_the_names_of_its_request(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        names = (x509.DNSName("web.default.svc"),)
        usages = ["digital signature", "server auth"]
        spec: dict[str, Any] = {"signerName": SERVING_SIGNER, "usages": usages}
        document = a_request("r", "system:node:a", "system:nodes", names=names, **spec)
        await ask.ok("POST", PATH, document)
        await approve(ask)
        certificate = await issued(ask)
        extensions = certificate.extensions
        found = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert tuple(found) == names
        purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]
        assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca

    with_requests(tmp_path, test)


def test_requests_that_their_signer_does_not_accept_fail(tmp_path: Path) -> None:
    usages = ["digital signature", "server auth"]
    nodes: dict[str, Any] = {"signerName": SERVING_SIGNER, "usages": usages}
    dns = (x509.DNSName("a.b"),)
    cases = [
        (a_request(usages=["client auth", "server auth"]), "invalid usage for client certificate"),
        (a_request(usages=["digital signature"]), "missing required usage for client certificate"),
        (a_request("r", "system:node:a", "devs", names=dns, **nodes), "is not system:nodes"),
        (a_request("r", "system:node:a", "system:nodes", **nodes), "subjectAltName is required"),
        (a_request("r", "a", "system:nodes", names=dns, **nodes), "common name does not begin"),
        (
            a_request("r", "a", "system:nodes", names=(*dns, x509.RFC822Name("a@b.c")), **nodes),
            "Email subjectAltNames are not allowed",
        ),
    ]

    async def test(ask: Requests) -> None:
        for number, (document, message) in enumerate(cases):
            document["metadata"]["name"] = f"r{number}"
            await ask.ok("POST", PATH, document)
            await approve(ask, f"r{number}")
            assert message in await failure(ask, f"r{number}")

    with_requests(tmp_path, test)


def test_only_approved_requests_of_known_signers_are_signed(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        for name in ("pending", "denied", "foreign", "last"):
            signer = "example.com/a" if name == "foreign" else CLIENT_SIGNER
            await ask.ok("POST", PATH, a_request(name, signerName=signer))
        denied = {"status": {"conditions": [{**APPROVED, "type": "Denied"}]}}
        path = f"{PATH}/denied/approval"
        await ask.ok("PATCH", path, denied, content_type=MERGE)
        await approve(ask, "foreign")
        await approve(ask, "last")
        # The controller has one worker: when the last one is signed, the others were seen.
        await issued(ask, "last")
        for name in ("pending", "denied", "foreign"):
            assert "certificate" not in (await ask.get(f"{PATH}/{name}")).get("status", {})
        rows = (await ask.get(PATH, accept="application/json;as=Table;v=v1;g=meta.k8s.io"))["rows"]
        shown = {row["cells"][0]: row["cells"][-1] for row in rows}
        assert shown == {
            "pending": "Pending",
            "denied": "Denied",
            "foreign": "Approved",
            "last": "Approved,Issued",
        }

    with_requests(tmp_path, test)


def test_requests_are_selected_by_their_signer(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await ask.ok("POST", PATH, a_request("mine", signerName="example.com/a"))
        await ask.ok("POST", PATH, a_request("other", signerName="example.com/b"))
        listed = await ask.get(f"{PATH}?fieldSelector=spec.signerName%3Dexample.com/a")
        assert [item["metadata"]["name"] for item in listed["items"]] == ["mine"]
        code, refused = await ask("GET", f"{PATH}?fieldSelector=spec.username%3Da")
        assert (code, refused["message"]) == (400, "field label not supported: spec.username")

    with_requests(tmp_path, test)


def test_decisions_and_certificates_are_final_and_have_their_endpoints(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        await ask.ok("POST", PATH, a_request(signerName="example.com/a"))
        early = {"status": {"conditions": [APPROVED]}}
        code, answer = await ask("PATCH", f"{PATH}/r/status", early, content_type=MERGE)
        assert (code, "may not add a condition" in answer["message"]) == (422, True)
        # The main endpoint changes metadata only.
        await ask.ok("PATCH", f"{PATH}/r", {**early, "spec": {"usages": []}}, content_type=MERGE)
        assert "conditions" not in (await ask.get(f"{PATH}/r")).get("status", {})
        await approve(ask)
        status: dict[str, Any]
        for status, message in (
            ({"conditions": []}, 'updates may not remove a condition of type "Approved"'),
            (
                {"conditions": [APPROVED, {**APPROVED, "type": "Denied"}]},
                "Approved and Denied conditions are mutually exclusive",
            ),
            ({"conditions": [{**APPROVED, "status": "False"}]}, 'supported values: "True"'),
        ):
            body: dict[str, Any] = {"status": status}
            code, answer = await ask("PATCH", f"{PATH}/r/approval", body, content_type=MERGE)
            assert (code, message in answer["message"]) == (422, True), answer
        garbage = {"status": {"certificate": base64.b64encode(b"x").decode()}}
        code, answer = await ask("PATCH", f"{PATH}/r/status", garbage, content_type=MERGE)
        assert (code, answer["details"]["causes"][0]["field"]) == (422, "status.certificate")
        approved = (await ask.get(f"{PATH}/r"))["status"]["conditions"][0]
        assert {"lastUpdateTime", "lastTransitionTime"} <= approved.keys()

    with_requests(tmp_path, test)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"request": base64.b64encode(b"x").decode()}, "spec.request"),
        ({"usages": ["fly"]}, "spec.usages[0]"),
        ({"usages": ["client auth", "client auth"]}, "spec.usages[1]"),
        ({"signerName": "nobody"}, "spec.signerName"),
        ({"signerName": "kubernetes.io/legacy-unknown"}, "spec.signerName"),
        ({"expirationSeconds": 599}, "spec.expirationSeconds"),
    ],
)
def test_an_invalid_request_is_refused_with_its_field(
    tmp_path: Path, spec: dict[str, Any], field: str
) -> None:
    async def test(ask: Requests) -> None:
        document = a_request()
        document["spec"] |= spec
        code, answer = await ask("POST", PATH, document)
        assert code == 422
        assert [cause["field"] for cause in answer["details"]["causes"]] == [field]

    with_requests(tmp_path, test)


def test_a_request_signed_with_another_key_is_refused(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        document = a_request()
        pem = base64.b64decode(document["spec"]["request"]).decode()
        lines = pem.splitlines()
        der = bytearray(base64.b64decode("".join(lines[1:-1])))
        der[-1] ^= 1
        changed = base64.b64encode(bytes(der)).decode()
        text = f"{lines[0]}\n{changed}\n{lines[-1]}\n"
        document["spec"]["request"] = base64.b64encode(text.encode()).decode()
        code, _ = await ask("POST", PATH, document)
        assert code == 422

    with_requests(tmp_path, test)


def test_nobody_gets_a_certificate_of_the_group_that_may_do_everything(tmp_path: Path) -> None:
    async def test(ask: Requests) -> None:
        code, answer = await ask("POST", PATH, a_request("r", "a", "devs", "system:masters"))
        assert code == 403
        assert "system:masters" in answer["message"]

    with_requests(tmp_path, test)


def test_approval_and_signing_require_their_verbs_on_the_signer(tmp_path: Path) -> None:
    async def allow(ask: Requests, *rules: dict[str, Any]) -> None:
        role = {"metadata": {"name": "approver"}, "rules": list(rules)}
        await ask("DELETE", f"{RBAC}/clusterroles/approver")
        await ask.ok("POST", f"{RBAC}/clusterroles", role)

    async def test(ask: Requests) -> None:
        group = {"apiGroups": ["certificates.k8s.io"]}
        requests = {
            **group,
            "resources": [
                "certificatesigningrequests/approval",
                "certificatesigningrequests/status",
            ],
            "verbs": ["patch", "update"],
        }
        signers = {**group, "resources": ["signers"], "verbs": ["approve"]}
        binding = {
            "metadata": {"name": "approver"},
            "roleRef": {"kind": "ClusterRole", "name": "approver"},
            "subjects": [{"kind": "User", "name": "eve"}],
        }
        await allow(ask, requests)
        await ask.ok("POST", f"{RBAC}/clusterrolebindings", binding)
        await ask.ok("POST", PATH, a_request(signerName="example.com/a"))
        eve = {"Impersonate-User": "eve"}

        async def until(code: int, message: str, path: str, body: Any) -> None:
            # The policy takes a moment to be in force.
            while True:
                found, answer = await ask("PATCH", path, body, content_type=MERGE, headers=eve)
                if found == code and message in answer.get("message", ""):
                    return

        approval = {"status": {"conditions": [APPROVED]}}
        text = 'not permitted to approve requests with signerName "example.com/a"'
        await until(403, text, f"{PATH}/r/approval", approval)
        await allow(ask, requests, {**signers, "resourceNames": ["example.com/*"]})
        await until(200, "", f"{PATH}/r/approval", approval)
        failed = {"status": {"conditions": [APPROVED, {**APPROVED, "type": "Failed"}]}}
        text = 'not permitted to sign requests with signerName "example.com/a"'
        await until(403, text, f"{PATH}/r/status", failed)

    with_requests(tmp_path, test)


@needs_kubectl
async def test_kubectl_approves_and_denies(tmp_path: Path) -> None:
    assert KUBECTL is not None
    async with a_server(tmp_path) as ask, asyncio.timeout(60):
        await ask.ok("POST", PATH, a_request("yes"))
        await ask.ok("POST", PATH, a_request("no"))
        for verb, name in (("approve", "yes"), ("deny", "no")):
            command = (KUBECTL, "--kubeconfig", str(tmp_path / "kubeconfig"), "certificate")
            done = await asyncio.to_thread(
                subprocess.run,
                (*command, verb, name),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        await issued(ask, "yes")
        denied = (await ask.get(f"{PATH}/no"))["status"]["conditions"]
        assert [each["type"] for each in denied] == ["Denied"]
