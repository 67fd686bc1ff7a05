"""Choice of a proxy by environment variables."""

import pytest

from onejob.client.proxies import proxy_for

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "environment", "proxy"),
    [
        ("https://api.example:6443", {}, ""),
        ("https://api.example:6443", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://api.example:6443", {"https_proxy": "proxy:3128"}, PROXY),
        ("https://api.example:6443", {"HTTP_PROXY": PROXY}, ""),
        ("http://api.example", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, ""),
        ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, ""),
    ],
)
def test_the_variable_of_the_scheme_names_it(
    server: str, environment: dict[str, str], proxy: str
) -> None:
    assert proxy_for(server, environment) == proxy


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        ("https://api.example:6443", "*", True),
        ("https://api.example:6443", "other, api.example", True),
        ("https://api.example:6443", "example", True),
        ("https://api.example:6443", ".example", True),
        ("https://example:6443", ".example", False),
        ("https://api.example:6443", "*.example", True),
        ("https://myexample:6443", "example", False),
        ("https://api.example:6443", "api.example:6443", True),
        ("https://api.example:6443", "api.example:443", False),
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://11.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "10.1.2.3", True),
        ("https://[fd00::1]:6443", "fd00::/16", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://10.1.2.3:6443", "nonsense/8", False),
        ("https://api.example", "", False),
    ],
)
def test_exceptions_are_names_domains_addresses_and_networks(
    server: str, no_proxy: str, direct: bool
) -> None:
    assert proxy_for(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) == (
        "" if direct else PROXY
    )
