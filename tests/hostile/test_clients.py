"""Unauthorized clients: refused with the right code, without leaks or damage.

Every case is one row; `make test` counts them by name.
"""

from collections.abc import Iterator

import pytest

from tests.hostile.support import Answered, Victim, a_victim, request

NAMESPACES = "/api/v1/namespaces"
TREASURE_PATH = "/api/v1/namespaces/team-b/secrets/treasure"


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with a_victim(tmp_path_factory.mktemp("victim")) as found:
        yield found
        assert "Traceback" not in found.server.log, found.server.log


def check(victim: Victim, answer: Answered, *codes: int) -> None:
    """Check that the response has one of these codes (0: no response) and contains no secret."""
    got = answer.codes or [0]
    assert set(got) <= set(codes), answer.raw
    for secret in victim.secrets:
        assert secret not in answer.raw


def test_owner_and_permitted_users_are_admitted(victim: Victim) -> None:
    """So that the refusals below are meaningful."""
    assert victim.call("GET", TREASURE_PATH)["data"]
    token = victim.tokens["good account"]
    assert victim.call("GET", TREASURE_PATH, token=token)["data"]
    answer = victim.send(request("GET", TREASURE_PATH), certificate=victim.certificates["good"])
    assert answer.codes == [200]
    listing = f"{NAMESPACES}/team-a/pods"
    assert victim.call("GET", listing, token=victim.tokens["viewer"])["kind"] == "PodList"


BAD_TOKENS = [
    "revoked", "expired", "other audience", "deleted account", "account of the same name",
    "deleted Secret", "deleted Pod", "changed claims", "alg none", "alg None", "alg ES384",
    "public key as secret", "other key", "other key under our name", "key by URL",
    "kid is a path", "empty signature", "zero signature", "no claims", "claims are a list",
    "not JSON", "too many parts", "expired token", "not valid yet", "other issuer",
    "no audience", "no account", "end is a text",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_a_token_that_is_not_good(victim: Victim, name: str) -> None:
    check(victim, victim.send(request("GET", TREASURE_PATH, token=victim.tokens[name])), 401)


def test_every_bad_token_is_tried(victim: Victim) -> None:
    assert set(victim.tokens) == {*BAD_TOKENS, "viewer", "good account"}


ADMIN = "ADMIN"
CREDENTIALS = {
    "none": (),
    "empty bearer": ("Authorization: Bearer ",),
    "nonsense": ("Authorization: Bearer \x7fnonsense",),
    "latin": ("Authorization: Bearer \u00e9\u00e8",),
    "admin token as password": (f"Authorization: Basic {ADMIN}",),
    "admin token without its end": (f"Authorization: Bearer {ADMIN[:-1]}",),
    "admin token and more": (f"Authorization: Bearer {ADMIN}x",),
    "admin token in another case": (f"Authorization: Bearer {ADMIN}".swapcase(),),
    "scheme only": ("Authorization: Bearer",),
    "as a cookie": (f"Cookie: token={ADMIN}",),
    "name in a proxy's header": ("X-Remote-User: admin", "X-Remote-Group: system:masters"),
    "forwarded certificate": ("X-Forwarded-Client-Cert: Subject=/O=system:masters/CN=admin",),
    "local by header": ("X-Forwarded-For: 127.0.0.1", "X-Real-Ip: 127.0.0.1"),
    "impersonation": ("Impersonate-User: system:admin", "Impersonate-Group: system:masters"),
    "hash of a kept user": ("Authorization: Bearer onejob_" + "0" * 43,),
    "very long": ("Authorization: Bearer " + "a." * 15000,),
    "made-up session of the dashboard": (
        "Cookie: __Host-onejob-443=x",
        "X-Onejob-Session: y",
    ),
    "session without its cookie": (f"X-Onejob-Session: {ADMIN}",),
}


@pytest.mark.parametrize("name", CREDENTIALS)
def test_credentials_that_are_none(victim: Victim, name: str) -> None:
    admin = (victim.state / "admin.token").read_text().strip()
    changed = {
        "admin token in another case": f"Authorization: Bearer {admin.swapcase()}",
        "admin token without its end": f"Authorization: Bearer {admin[:-1]}",
    }
    headers = [changed.get(name, header.replace(ADMIN, admin)) for header in CREDENTIALS[name]]
    codes = (400, 401) if name == "nonsense" else (401,)
    check(victim, victim.send(request("GET", TREASURE_PATH, *headers)), *codes)


@pytest.mark.parametrize("name", ["Authorization", "Host", "Impersonate-User", "X-Onejob-Session"])
@pytest.mark.parametrize("path", [TREASURE_PATH, "/version"])
def test_request_with_a_deciding_header_twice_is_refused(
    victim: Victim, path: str, name: str
) -> None:
    """A proxy in front may have evaluated the other one."""
    admin = (victim.state / "admin.token").read_text().strip()
    values = {"Authorization": f"Bearer {admin}", "Host": "victim"}
    value = values.get(name, "onejob-admin")
    headers = [f"{name}: {value}"] * (1 if name == "Host" else 2)
    check(victim, victim.send(request("GET", path, *headers)), 400)


BAD_CERTIFICATES = ["of another authority", "expired", "not valid yet", "for servers", "of nobody"]


@pytest.mark.parametrize("name", BAD_CERTIFICATES)
def test_a_certificate_that_is_not_good(victim: Victim, name: str) -> None:
    answer = victim.send(request("GET", TREASURE_PATH), certificate=victim.certificates[name])
    check(victim, answer, 0, 401)


#: For a user who may read team-a, and nothing of team-b.
PATHS = {
    "the treasure itself": (TREASURE_PATH, 403),
    "all secrets": ("/api/v1/secrets", 403),
    "secrets of their own namespace": ("/api/v1/namespaces/team-a/secrets", 403),
    "up and over": ("/api/v1/namespaces/team-a/../team-b/secrets/treasure", 404),
    "up and over, encoded": ("/api/v1/namespaces/team-a/%2e%2e/team-b/secrets/treasure", 404),
    "slashes encoded": ("/api/v1/namespaces/team-a%2f..%2fteam-b/secrets/treasure", 403),
    "slash in a name": ("/api/v1/namespaces/team-a/pods/..%2f..%2fteam-b%2fsecrets%2fx", 404),
    "twice encoded": ("/api/v1/namespaces/team-a%252f..%252fteam-b/secrets/treasure", 403),
    "two slashes": ("//api/v1/namespaces/team-b/secrets/treasure", 403),
    "slashes within": ("/api/v1//namespaces/team-b//secrets/treasure", 404),
    "empty namespace": ("/api/v1/namespaces//secrets", 404),
    "trailing slash": ("/api/v1/namespaces/team-b/secrets/treasure/", 403),
    "backslashes": ("/api/v1/namespaces/team-a\\..\\team-b/secrets/treasure", 403),
    "semicolons": ("/api/v1/namespaces/team-a;/../team-b/secrets/treasure", 404),
    "NUL": ("/api/v1/namespaces/team-b%00/secrets/treasure", 403),
    "capitals": ("/API/V1/namespaces/team-b/secrets/treasure", 404),
    "capital resource": ("/api/v1/namespaces/team-b/Secrets/treasure", 404),
    "fragment": ("/api/v1/namespaces/team-b/secrets/treasure#/../../team-a/pods", 403),
    "old watch path": ("/api/v1/watch/namespaces/team-b/secrets", 403),
    "old watch path of all": ("/api/v1/watch/secrets", 403),
    "watch by query": ("/api/v1/namespaces/team-b/configmaps?watch=1", 403),
    "namespace by query": ("/api/v1/secrets?namespace=team-a", 403),
    "field selector": ("/api/v1/secrets?fieldSelector=metadata.namespace=team-a", 403),
    "other namespace's configmaps": ("/api/v1/namespaces/team-b/configmaps/note", 403),
    "status of a stranger": ("/api/v1/namespaces/team-b/status", 403),
    "log of a stranger": ("/api/v1/namespaces/team-b/pods/x/log", 403),
    "exec without upgrade": ("/api/v1/namespaces/team-a/pods/x/exec?command=id", 403),
    "metrics": ("/metrics", 403),
    "metrics behind health": ("/healthz/../metrics", 404),
    "metrics behind health, encoded": ("/healthz%2f..%2fmetrics", 404),
    "logs of the server": ("/logs/serve.log", 404),
    "files of the server": ("/../../../../etc/passwd", 404),
    "files of the server, encoded": ("/%2e%2e/%2e%2e/%2e%2e/etc/passwd", 404),
    "profiles": ("/debug/pprof/heap", 404),
    "data dir": ("/static/admin.token", 404),
    "absolute address": ("https://victim/api/v1/namespaces/team-b/secrets/treasure", 400, 403, 404),
    "address of another": ("http://169.254.169.254/latest/meta-data", 400, 404),
    "asterisk": ("*", 400, 404),
    "no path": ("", 400),
    "secrets behind the dashboard": ("/ui/../api/v1/secrets", 404),
    "metrics behind the dashboard": ("/ui/%2e%2e/metrics", 404),
    "files behind the dashboard": ("/ui/..%2f..%2f..%2fetc%2fpasswd", 404),
    "nodes": ("/api/v1/nodes", 403),
    "tokens of others": ("/apis/authentication.k8s.io/v1/tokenreviews", 403, 405),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_ways_around_a_role(victim: Victim, name: str) -> None:
    path, *codes = PATHS[name]
    token = victim.tokens["viewer"]
    check(victim, victim.send(request("GET", str(path), token=token)), *map(int, codes))


@pytest.mark.parametrize("name", PATHS)
def test_the_same_ways_without_credentials(victim: Victim, name: str) -> None:
    check(victim, victim.send(request("GET", str(PATHS[name][0]))), 400, 401, 404)


WRITES = {
    "delete by another method's name": ("GET", TREASURE_PATH, ("X-HTTP-Method-Override: DELETE",)),
    "delete": ("DELETE", TREASURE_PATH, ()),
    "delete all": ("DELETE", "/api/v1/namespaces/team-b/secrets", ()),
    "own roles": ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles", ()),
    "own binding": (
        "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings", (),
    ),
    "cluster binding": ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", ()),
    "a token of another account": (
        "POST", "/api/v1/namespaces/team-a/serviceaccounts/boss/token", (),
    ),
    "a Pod": ("POST", "/api/v1/namespaces/team-a/pods", ()),
    "a Pod on a node": ("POST", "/api/v1/namespaces/team-a/bindings", ()),
    "a node": ("POST", "/api/v1/nodes", ()),
    "as the admin": ("GET", TREASURE_PATH, ("Impersonate-User: onejob-admin",)),
    "as a master": (
        "GET", TREASURE_PATH, ("Impersonate-User: viewer", "Impersonate-Group: system:masters"),
    ),
    "as an account": (
        "GET", TREASURE_PATH, ("Impersonate-User: system:serviceaccount:team-a:boss",),
    ),
    "as a node": ("GET", TREASURE_PATH, ("Impersonate-User: system:node:x",)),
    "as a uid": ("GET", TREASURE_PATH, ("Impersonate-User: viewer", "Impersonate-Uid: 0")),
    "as a group of nobody": ("GET", TREASURE_PATH, ("Impersonate-Group: system:masters",)),
    "a review of a token": ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", ()),
    "a review of another": ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", ()),
    "a webhook": (
        "POST",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", (),
    ),
    "a certificate": ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", ()),
    "trace": ("TRACE", TREASURE_PATH, ()),
    "connect": ("CONNECT", TREASURE_PATH, ()),
    "made-up method": ("STEAL", TREASURE_PATH, ()),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_what_a_viewer_cannot_do(victim: Victim, name: str) -> None:
    method, path, headers = WRITES[name]
    body = b'{"metadata": {"name": "mine"}}' if method == "POST" else b""
    token = victim.tokens["viewer"]
    answer = victim.send(request(method, path, *headers, token=token, body=body))
    check(victim, answer, 400, 403, 405)
    assert victim.call("GET", TREASURE_PATH)["data"]


def _smuggled(head: str, body: str) -> bytes:
    return f"POST /version HTTP/1.1\r\nHost: victim\r\n{head}\r\n\r\n{body}".encode("latin-1")


HIDDEN = f"DELETE {TREASURE_PATH} HTTP/1.1\r\nHost: victim\r\nAuthorization: Bearer ADMIN\r\n\r\n"
#: A request within the body of another. It is harmless only if the server takes it for a body, or
#: reads nothing after the first.
SMUGGLING = {
    "length and chunks": ("Content-Length: 4\r\nTransfer-Encoding: chunked", f"0\r\n\r\n{HIDDEN}"),
    "chunks and length": ("Transfer-Encoding: chunked\r\nContent-Length: 4", f"0\r\n\r\n{HIDDEN}"),
    "two lengths": (f"Content-Length: 0\r\nContent-Length: {len(HIDDEN)}", HIDDEN),
    "two lengths in one": (f"Content-Length: 0, {len(HIDDEN)}", HIDDEN),
    "negative length": ("Content-Length: -1", HIDDEN),
    "length with a sign": ("Content-Length: +0", HIDDEN),
    "length in hex": ("Content-Length: 0x0", HIDDEN),
    "length of blanks": ("Content-Length:  ", HIDDEN),
    "length beyond all bounds": ("Content-Length: 99999999999999999999", HIDDEN),
    "blank before the colon": ("Transfer-Encoding : chunked", f"0\r\n\r\n{HIDDEN}"),
    "tab before chunked": ("Transfer-Encoding:\tchunked, identity", f"0\r\n\r\n{HIDDEN}"),
    "unknown coding": ("Transfer-Encoding: xchunked", f"0\r\n\r\n{HIDDEN}"),
    "chunked twice": (
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", f"0\r\n\r\n{HIDDEN}",
    ),
    "folded header": ("X: y\r\n Transfer-Encoding: chunked", HIDDEN),
    "bare line feeds": ("X: y\nTransfer-Encoding: chunked", f"0\r\n\r\n{HIDDEN}"),
    "bad chunk size": ("Transfer-Encoding: chunked", f"zz\r\n\r\n{HIDDEN}"),
    "huge chunk size": ("Transfer-Encoding: chunked", f"ffffffffffffffffff\r\n{HIDDEN}"),
    "negative chunk size": ("Transfer-Encoding: chunked", f"-1\r\n{HIDDEN}"),
    "NUL in a header": ("X: a\x00b\r\nContent-Length: 0", HIDDEN),
    "old upgrade": (
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        "Content-Length: 0", HIDDEN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMUGGLING)
def test_a_request_within_a_request(victim: Victim, name: str) -> None:
    """With the token of a viewer: each request that is read separately gets its own response."""
    head, body = SMUGGLING[name]
    token = victim.tokens["viewer"]
    raw = _smuggled(head, body.replace("ADMIN", token))
    # Bytes after an upgrade are not read as requests, and the connection stays open for a while.
    upgraded = name == "old upgrade"
    answer = victim.send(raw + request("GET", "/version"), reads_to_end=not upgraded)
    check(victim, answer, 0, 200, 400, 403, 405, 413)
    assert victim.call("GET", TREASURE_PATH)["data"]


BROKEN = {
    "plain text": b"hello\r\n\r\n",
    "TLS in TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /api/v1/secrets\r\n\r\n",
    "HTTP/9.9": b"GET /api/v1/secrets HTTP/9.9\r\nHost: v\r\n\r\n",
    "no host": b"GET /api/v1/secrets HTTP/1.1\r\nConnection: close\r\n\r\n",
    "two hosts": b"GET /api/v1/secrets HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
    "header without a name": b"GET / HTTP/1.1\r\nHost: v\r\n: x\r\n\r\n",
    "header without a colon": b"GET / HTTP/1.1\r\nHost: v\r\nnonsense\r\n\r\n",
    "line feed in the path": b"GET /api\n/v1 HTTP/1.1\r\nHost: v\r\n\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\nHost: v\r\nConnection: close\r\n\r\n",
    "huge path": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: v\r\nConnection: close\r\n\r\n",
    "huge query": b"GET /version?" + b"a=b&" * 50_000 + b" HTTP/1.1\r\nHost: v\r\n\r\n",
    "huge header": b"GET / HTTP/1.1\r\nHost: v\r\nX: " + b"a" * 2_000_000 + b"\r\n\r\n",
    "very many headers": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
    "huge method": b"A" * 100_000 + b" / HTTP/1.1\r\nHost: v\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_malformed_requests_are_rejected(victim: Victim, name: str) -> None:
    check(victim, victim.send(BROKEN[name]), 0, 400, 401, 404, 431, 505)


UPGRADE = (
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: v5.channel.k8s.io",
)  # fmt: skip
SPDY = ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")
SESSIONS = {
    f"{how} to {what}, {who}": (how, what, who)
    for how in ("WebSocket", "SPDY")
    for what in ("exec", "attach", "portforward", "log")
    for who in ("nobody", "forged", "viewer elsewhere")
    if not (how == "SPDY" and what == "log")
}


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_are_not_opened_for_strangers(victim: Victim, name: str) -> None:
    how, what, who = SESSIONS[name]
    token = {
        "nobody": "", "forged": victim.tokens["alg none"],
        "viewer elsewhere": victim.tokens["viewer"],
    }[who]  # fmt: skip
    headers = UPGRADE if how == "WebSocket" else SPDY
    method = "GET" if how == "WebSocket" else "POST"
    path = f"/api/v1/namespaces/team-b/pods/p/{what}?command=id&stdout=1&ports=80"
    raw = request(method, path, *headers, token=token, close=False)
    answer = victim.send(raw, reads_to_end=False)
    check(victim, answer, 403 if token == victim.tokens["viewer"] else 401)


@pytest.mark.parametrize("who", ["nobody", "forged", "viewer"])
@pytest.mark.parametrize("how", ["WebSocket", "SPDY"])
@pytest.mark.parametrize("path", ["/version", "/metrics", "/api", "/ui/api/codes", "/none", "*"])
def test_session_requests_for_other_paths_are_rejected(
    victim: Victim, path: str, how: str, who: str
) -> None:
    token = {"nobody": "", "forged": "alg none", "viewer": "viewer"}[who]
    headers, method = (UPGRADE, "GET") if how == "WebSocket" else (SPDY, "POST")
    raw = request(method, path, *headers, token=victim.tokens.get(token, ""), close=False)
    check(victim, victim.send(raw, reads_to_end=False), 400, 401, 404)


@pytest.mark.parametrize(
    ("path", "code"), [("pods/p/exec?command=id", 404), ("pods?watch=true", 101)]
)
@pytest.mark.parametrize("origin", ["https://evil", "null", "https://victim"])
def test_a_browser_on_another_site_opens_no_session(
    victim: Victim, path: str, code: int, origin: str
) -> None:
    """`code` is the response to a page of the server itself."""
    path = f"/api/v1/namespaces/team-a/{path}"
    upgrade = [line for line in UPGRADE if "Protocol" not in line or "exec" in path]
    raw = request("GET", path, *upgrade, f"Origin: {origin}", close=False)
    answer = victim.send(raw, certificate=victim.certificates["good"], reads_to_end=False)
    check(victim, answer, code if origin == "https://victim" else 403)


@pytest.mark.parametrize(
    ("site", "code"),
    [("cross-site", 403), ("same-site", 403), ("new-word", 403), ("same-origin", 201), ("", 201)],
)
@pytest.mark.parametrize("path", [f"{NAMESPACES}/team-a/configmaps", "/ui/api/codes"])
def test_a_browser_on_another_site_writes_nothing(
    victim: Victim, path: str, site: str, code: int
) -> None:
    """It would send the client certificate of the browser's user."""
    body = b'{"metadata":{"generateName":"planted-"}}'
    # A content type of its own would cause a preflight request.
    lines = ["Host: victim", "Connection: close", f"Content-Length: {len(body)}"]
    if site:
        lines += ["Origin: https://evil", f"Sec-Fetch-Site: {site}"]
    raw = "\r\n".join([f"POST {path} HTTP/1.1", *lines]).encode() + b"\r\n\r\n" + body
    answer = victim.send(raw, certificate=victim.certificates["good"])
    assert answer.codes == [code]
    # No browser adds a token by itself: its sender did so on purpose, perhaps for a browser.
    token = f"\r\nAuthorization: Bearer {victim.tokens['good account']}\r\n\r\n".encode()
    assert victim.send(raw.replace(b"\r\n\r\n", token, 1)).codes == [201]


BODIES = {
    "deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "not JSON": b"\x00\xff{",
    "a list": b"[]",
    "wrong kind": b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}',
    "another namespace": b'{"metadata":{"name":"x","namespace":"team-b"}}',
    "name with a path": b'{"metadata":{"name":"../../etc/passwd"}}',
    "huge number": b'{"metadata":{"name":"x"},"data":{"a":' + b"9" * 100_000 + b"}}",
    "too large": b'{"metadata":{"name":"x"},"data":{"a":"' + b"a" * 4_000_000 + b'"}}',
    "own uid and owner": b'{"metadata":{"name":"x","uid":"u","ownerReferences":"me"}}',
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_of_somebody_who_may_write(victim: Victim, name: str) -> None:
    token = victim.tokens["good account"]
    raw = request("POST", "/api/v1/namespaces/team-a/configmaps", token=token, body=BODIES[name])
    check(victim, victim.send(raw), 400, 413, 422)


def test_nothing_of_all_this_is_an_error_of_the_server(victim: Victim) -> None:
    """Runs last in this file; alone it shows that an unattacked server has no errors."""
    admin = (victim.state / "admin.token").read_text().strip()
    answer = victim.send(request("GET", "/metrics", token=admin))
    failed = [
        line
        for line in answer.raw.decode("utf-8", "replace").splitlines()
        if line.startswith("apiserver_request_total{") and 'code="5' in line
    ]
    assert failed == []
