"""The server's own authority and certificate: created once, private, renewed in time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from onejob.api.access.certificates import (
    BadAuthority,
    Certificates,
    ensure_certificates,
    server_names,
)
from onejob.api.access.private_files import write_private

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


def kill_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise before that file is written, as if the process had been killed."""

    def write(path: Path, content: bytes) -> None:
        if path.name == name:
            raise InterruptedError(name)
        write_private(path, content)

    monkeypatch.setattr("onejob.api.access.certificates.write_private", write)


@pytest.mark.parametrize("file", ["ca.key", "ca.crt", "server.key", "server.crt"])
@pytest.mark.parametrize("years", [0, 10], ids=["first start", "renewal"])
def test_a_start_that_was_killed_is_mended_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, years: int
) -> None:
    now = NOW + timedelta(days=365 * years)
    if years:
        ensure_certificates(tmp_path, NAMES, NOW)
    with monkeypatch.context() as patch:
        kill_before(file, patch)
        with pytest.raises(InterruptedError):
            ensure_certificates(tmp_path, NAMES, now)
    made = ensure_certificates(tmp_path, NAMES, now)
    made.server_context()
    load(made.certificate).verify_directly_issued_by(load(made.authority))


def mix_up_keys(made: Certificates, other: Certificates) -> None:
    made.key.write_bytes(other.key.read_bytes())


def take_from_another_authority(made: Certificates, other: Certificates) -> None:
    made.key.write_bytes(other.key.read_bytes())
    made.certificate.write_bytes(other.certificate.read_bytes())


def cut_off(made: Certificates, other: Certificates) -> None:
    made.certificate.write_bytes(made.certificate.read_bytes()[:100])


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (mix_up_keys, "does not belong to its key"),
        (take_from_another_authority, "is of another authority"),
        (cut_off, "cannot be read"),
    ],
)
def test_a_server_certificate_of_no_use_is_replaced_under_the_same_authority(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Certificates, Certificates], None],
    why: str,
) -> None:
    made = ensure_certificates(tmp_path / "a", NAMES, NOW)
    before = contents(made)
    spoil(made, ensure_certificates(tmp_path / "b", NAMES, NOW))
    ensure_certificates(tmp_path / "a", NAMES, NOW)
    assert contents(made)[:2] == before[:2]
    made.server_context()
    load(made.certificate).verify_directly_issued_by(load(made.authority))
    assert why in caplog.text


def test_a_clock_that_was_ahead_does_no_lasting_harm(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path, NAMES, NOW + timedelta(days=1000))
    before = contents(made)
    ensure_certificates(tmp_path, NAMES, NOW)
    assert contents(made)[:2] == before[:2]
    for path in (made.authority, made.certificate):
        assert load(path).not_valid_before_utc <= NOW


def test_nor_does_one_that_was_behind(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path, NAMES, datetime(1971, 1, 1, tzinfo=UTC))
    ensure_certificates(tmp_path, NAMES, NOW)
    for path in (made.authority, made.certificate):
        assert load(path).not_valid_after_utc > NOW


@pytest.mark.parametrize("file", ["ca.crt", "ca.key"])
@pytest.mark.parametrize("content", ["another's", "cut off"])
def test_an_authority_that_is_broken_is_refused_and_left_alone(
    tmp_path: Path, file: str, content: str
) -> None:
    made = ensure_certificates(tmp_path / "a", NAMES, NOW)
    other = ensure_certificates(tmp_path / "b", NAMES, NOW)
    spoilt = made.authority if file == "ca.crt" else made.authority_key
    if content == "another's":
        spoilt.write_bytes((other.authority.parent / file).read_bytes())
    else:
        spoilt.write_bytes(spoilt.read_bytes()[:80])
    before = contents(made)
    with pytest.raises(BadAuthority, match="or remove it to have a new authority made") as refused:
        ensure_certificates(tmp_path / "a", NAMES, NOW)
    assert "\n" not in str(refused.value)
    assert contents(made) == before


def test_a_listen_address_is_among_the_names() -> None:
    assert "10.0.0.7" in server_names("10.0.0.7")
    assert "0.0.0.0" not in server_names("0.0.0.0")


def contents(made: Certificates) -> list[bytes]:
    paths = (made.authority, made.authority_key, made.certificate, made.key)
    return [path.read_bytes() for path in paths]
