"""Secrets on disk: erased from the files once deleted, and encrypted where there are keys."""

import asyncio
import base64
from pathlib import Path

import apsw
import pytest

from onejob.objects.meta import Key
from onejob.store.base import CannotOpen, StoreError
from onejob.store.encryption import BadKeyFile, Cipher, MissingKey, read_key_file
from onejob.store.limits import Limits
from onejob.store.log import LogStore
from onejob.virtual_time import run_virtual
from tests.store.support import a_store, names, no_room_for, put

pytestmark = pytest.mark.virtual_time

_TEXT = "c2VjcmV0LXRleHQ-"
_LONG = _TEXT * 2000
_LIMITS = Limits(history_seconds=10)


def _secret(name: str = "s") -> Key:
    return Key("secrets", "default", name)


def _files(path: Path) -> bytes:
    """Return all bytes of the database, including its log."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


async def _write(store: LogStore, key: Key, text: str) -> None:
    await store.durable(put(store, key, f'{{"data":"{text}"}}'))


async def _remove(store: LogStore, key: Key) -> None:
    newest = store.newest(key)
    assert newest is not None
    store.stage(key, newest.revision, None)
    await store.durable(store.staged_revision)


@pytest.mark.parametrize("text", [_TEXT, _LONG], ids=["short", "long"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_deleted_secret_is_gone_from_the_files(
    tmp_path: Path, text: str, restarted: bool
) -> None:
    path = tmp_path / "db"

    async def fill() -> None:
        async with a_store(path, limits=_LIMITS) as store:
            for number in range(30):
                await _write(store, Key("pods", "default", f"p{number}"), "x" * 500)
            await _write(store, _secret(), text)
            await _write(store, _secret(), "again-" + text)
            for number in range(30):
                await _write(store, Key("pods", "default", f"q{number}"), "x" * 500)
            await _remove(store, _secret())
            assert _TEXT.encode() in _files(path), "history still has it"
            if not restarted:
                await asyncio.sleep(20)
                assert _TEXT.encode() not in _files(path)

    run_virtual(fill())
    if restarted:

        async def wait() -> None:
            async with a_store(path, limits=_LIMITS) as store:
                assert store.count("secrets", "default") == 0
                await asyncio.sleep(20)
                assert _TEXT.encode() not in _files(path)

        run_virtual(wait())
    assert _TEXT.encode() not in _files(path)


async def test_previous_secret_values_are_erased(tmp_path: Path) -> None:
    path = tmp_path / "db"
    async with a_store(path, limits=_LIMITS) as store:
        await _write(store, _secret(), _TEXT)
        await _write(store, _secret(), "other")
        await asyncio.sleep(20)
        assert _TEXT.encode() not in _files(path)
        assert b"other" in _files(path)


# --- encryption ---------------------------------------------------------------------------


def _keys(folder: Path, *lines: str) -> Path:
    file = folder / "keys"
    file.write_text("\n".join(lines) + "\n")
    file.chmod(0o600)
    return file


def _key(name: str, byte: int) -> str:
    return f"{name}:{base64.b64encode(bytes([byte]) * 32).decode()}"


def _cipher(folder: Path, *lines: str) -> Cipher:
    return read_key_file(_keys(folder, *lines))


async def test_secrets_are_encrypted_on_disk_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "db"
    cipher = _cipher(tmp_path, "# ours", _key("k1", 1))
    async with a_store(path, cipher=cipher) as store:
        watch = store.watch("secrets", after=store.revision)
        await _write(store, _secret(), _TEXT)
        await _write(store, _secret(), "second-" + _TEXT)
        await _write(store, Key("configmaps", "default", "c"), "in-the-clear")
        assert _TEXT.encode() not in _files(path)
        assert b"in-the-clear" in _files(path)
        stored = store.get(_secret())
        assert stored is not None
        assert stored.value == f'{{"data":"second-{_TEXT}"}}'.encode()
        (change,) = await anext(watch)
        assert change.value is not None
        assert _TEXT.encode() in change.value
    async with a_store(path, cipher=cipher) as store:
        assert names(store, "secrets") == ["s"]
        stored = store.get(_secret())
        assert stored is not None
        assert _TEXT.encode() in stored.value
        # History comes from disk now.
        changes = await anext(store.watch("secrets", after=1))
        assert [_TEXT.encode() in (change.value or b"") for change in changes] == [True, True]
        past = store.list("secrets", at=2).items
        assert past[0].value == f'{{"data":"{_TEXT}"}}'.encode()


async def test_first_key_encrypts_existing_secrets(tmp_path: Path) -> None:
    path = tmp_path / "db"
    async with a_store(path) as store:
        await _write(store, _secret(), _TEXT)
        revision = store.revision
    async with a_store(path, cipher=_cipher(tmp_path, _key("k1", 1))) as store:
        assert _TEXT.encode() not in _files(path)
        assert store.revision == revision
        stored = store.get(_secret())
        assert stored is not None
        assert _TEXT.encode() in stored.value


def test_a_full_disk_while_secrets_are_rewritten_is_not_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "db"
    # Of a length that fills a page: encrypted, it needs another one.
    text = "x" * 8_080

    async def in_the_clear() -> None:
        async with a_store(path) as store:
            for number in range(40):
                await _write(store, _secret(f"s{number}"), text)

    async def encrypted() -> None:
        async with a_store(path, cipher=_cipher(tmp_path, _key("a", 1))) as store:
            assert len(names(store, "secrets")) == 40

    run_virtual(in_the_clear())
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        # A limit below the present number of pages keeps that number.
        patched.setattr(apsw, "connection_hooks", [no_room_for("db", pages=1)])
        with pytest.raises(CannotOpen, match="the disk is full") as refused:
            run_virtual(encrypted())
    assert "damage" not in str(refused.value)
    assert path.read_bytes() == before
    run_virtual(encrypted())


async def test_a_new_first_key_lets_the_old_one_go(tmp_path: Path) -> None:
    path = tmp_path / "db"
    async with a_store(path, cipher=_cipher(tmp_path, _key("k1", 1))) as store:
        await _write(store, _secret(), _TEXT)
    async with a_store(path, cipher=_cipher(tmp_path, _key("k2", 2), _key("k1", 1))):
        pass
    async with a_store(path, cipher=_cipher(tmp_path, _key("k2", 2))) as store:
        stored = store.get(_secret())
        assert stored is not None
        assert _TEXT.encode() in stored.value
    async with a_store(path, cipher=_cipher(tmp_path, "none", _key("k2", 2))) as store:
        assert _TEXT.encode() in _files(path)
    async with a_store(path) as store:
        assert names(store, "secrets") == ["s"]


@pytest.mark.parametrize("given", [False, True])
async def test_a_lost_key_is_one_clear_line(tmp_path: Path, given: bool) -> None:
    path = tmp_path / "db"
    async with a_store(path, cipher=_cipher(tmp_path, _key("k1", 1))) as store:
        await _write(store, _secret(), _TEXT)
    before = path.read_bytes()
    other = _cipher(tmp_path, _key("k2", 2)) if given else None
    with pytest.raises(MissingKey) as caught:
        async with a_store(path, cipher=other):
            pass
    assert str(caught.value) == (
        "Secret default/s is encrypted with the unknown key 'k1': add it to the file of "
        "--encryption-key-file"
    )
    assert path.read_bytes() == before
    # Nothing is left behind that prevents the next start.
    async with a_store(path, cipher=_cipher(tmp_path, _key("k1", 1))) as store:
        assert names(store, "secrets") == ["s"]


async def test_a_key_of_the_same_name_that_is_another_one_damages_nothing(tmp_path: Path) -> None:
    path = tmp_path / "db"
    async with a_store(path, cipher=_cipher(tmp_path, _key("k1", 1))) as store:
        await _write(store, _secret(), _TEXT)
    async with a_store(path, cipher=_cipher(tmp_path, _key("k1", 9))) as store:
        stored = store.get(_secret())
        assert stored is not None
        assert _TEXT.encode() not in stored.value
    async with a_store(path, cipher=_cipher(tmp_path, _key("k1", 1))) as store:
        stored = store.get(_secret())
        assert stored is not None
        assert _TEXT.encode() in stored.value


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "contains no keys"),
        (["none"], "contains no keys"),
        (["k1"], "line 1: expected NAME:BASE64"),
        (["k1:???"], "line 1: expected NAME:BASE64"),
        (["k1:YWJj"], "line 1: expected NAME:BASE64"),
        ([_key("k1", 1), _key("k1", 2)], "line 2: duplicate key 'k1'"),
    ],
)
def test_invalid_key_file_error_has_reason(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(BadKeyFile) as caught:
        _cipher(tmp_path, *lines)
    assert said in str(caught.value)
    assert isinstance(caught.value, StoreError)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = _keys(tmp_path, _key("k1", 1))
    file.chmod(0o644)
    with pytest.raises(BadKeyFile, match="chmod 600"):
        read_key_file(file)
    with pytest.raises(BadKeyFile, match="cannot read"):
        read_key_file(tmp_path / "absent")
