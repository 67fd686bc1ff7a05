"""The server's own authority and certificate: made once, private, renewed in time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from onejob.api.certificates import Certificates, ensure_certificates, server_names

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("127.0.0.1", "::1", "localhost", "box")


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_everything_is_private(tmp_path: Path) -> None:
    ensure_certificates(tmp_path / "pki", NAMES, NOW)
    files = list((tmp_path / "pki").iterdir())
    assert {file.name for file in files} == {"ca.crt", "ca.key", "server.crt", "server.key"}
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (tmp_path / "pki").stat().st_mode & 0o777 == 0o700


def test_the_certificate_is_for_all_names_and_signed_by_the_authority(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path, NAMES, NOW)
    certificate = load(made.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"localhost", "box"}
    assert {str(a) for a in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "::1"}
    certificate.verify_directly_issued_by(load(made.authority))


def test_they_are_kept(tmp_path: Path) -> None:
    before = contents(ensure_certificates(tmp_path, NAMES, NOW))
    after = contents(ensure_certificates(tmp_path, NAMES, NOW + timedelta(days=30)))
    assert before == after


@pytest.mark.parametrize(
    ("names", "later"),
    [(NAMES, timedelta(days=1800)), ((*NAMES, "10.0.0.7"), timedelta())],
    ids=["about to expire", "a new name"],
)
def test_the_certificate_is_renewed_under_the_same_authority(
    tmp_path: Path, names: tuple[str, ...], later: timedelta
) -> None:
    before = contents(ensure_certificates(tmp_path, NAMES, NOW))
    made = ensure_certificates(tmp_path, names, NOW + later)
    after = contents(made)
    assert after[:2] == before[:2]
    assert after[2] != before[2]
    load(made.certificate).verify_directly_issued_by(load(made.authority))


def test_an_old_authority_is_replaced_with_its_certificate(tmp_path: Path) -> None:
    before = contents(ensure_certificates(tmp_path, NAMES, NOW))
    made = ensure_certificates(tmp_path, NAMES, NOW + timedelta(days=3640))
    assert contents(made)[0] != before[0]
    load(made.certificate).verify_directly_issued_by(load(made.authority))


def test_a_listen_address_is_among_the_names() -> None:
    assert "10.0.0.7" in server_names("10.0.0.7")
    assert "0.0.0.0" not in server_names("0.0.0.0")


def contents(made: Certificates) -> list[bytes]:
    paths = (made.authority, made.authority_key, made.certificate, made.key)
    return [path.read_bytes() for path in paths]
