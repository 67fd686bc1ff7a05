"""Ownership and mode checks of folders and files that onejob trusts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onejob.trusted_paths import (
    NotTrusted,
    make_own_folder,
    make_trusted_folder,
    read_own_file,
    require_own_files,
    require_trusted_folder,
)

#: Uid of no user on this machine.
STRANGER = 54_321

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    return made


def test_a_folder_of_ours_in_the_sticky_temporary_folder_is_trusted(folder: Path) -> None:
    require_trusted_folder(folder)
    require_own_files(folder)


def test_folder_of_other_user_is_not_trusted(folder: Path) -> None:
    with pytest.raises(NotTrusted, match=f"{folder} belongs to user") as refused:
        require_trusted_folder(folder, user=STRANGER if os.geteuid() == 0 else 0)
    assert "use your own directory" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("mode", [0o707, 0o777, 0o1777], ids=oct)
def test_a_folder_that_others_may_write_to_is_not(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(NotTrusted, match="other users can write"):
        require_trusted_folder(folder)


def test_replaceable_folder_is_not_trusted(folder: Path) -> None:
    """Renaming needs no permission on the file itself, only on its folder."""
    (folder / "inner").mkdir(mode=0o700)
    folder.chmod(0o777)
    with pytest.raises(NotTrusted, match=f"other users can write to {folder}") as refused:
        require_trusted_folder(folder / "inner")
    assert f"chmod go-w {folder}" in str(refused.value)
    folder.chmod(0o1777)
    require_trusted_folder(folder / "inner")


@needs_root
def test_folder_below_other_users_folder_is_not_trusted(folder: Path) -> None:
    (folder / "inner").mkdir(mode=0o700)
    os.chown(folder, STRANGER, -1)
    with pytest.raises(NotTrusted, match="who could replace its contents"):
        require_trusted_folder(folder / "inner")


def test_the_group_that_is_a_users_own_may_write(folder: Path) -> None:
    """The default of distributions with a group per user and umask 002."""
    folder.chmod(0o770)
    require_trusted_folder(folder)


@needs_root
def test_a_group_with_members_may_not(folder: Path) -> None:
    import grp

    shared = next(g.gr_gid for g in grp.getgrall() if g.gr_name == "users")
    os.chown(folder, -1, shared)
    folder.chmod(0o770)
    with pytest.raises(NotTrusted, match="other users can write"):
        require_trusted_folder(folder)


def test_links_of_ours_on_the_way_are_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "inner").mkdir()
    (tmp_path / "by-name").symlink_to("data/../data")
    (tmp_path / "by-path").symlink_to(tmp_path / "by-name")
    require_trusted_folder(tmp_path / "by-path" / "inner")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(NotTrusted, match="too many symbolic links"):
        require_trusted_folder(tmp_path / "round")


@needs_root
def test_foreign_link_in_sticky_folder_is_not_trusted(tmp_path: Path) -> None:
    shared, ours = tmp_path / "shared", tmp_path / "ours"
    shared.mkdir()
    shared.chmod(0o1777)
    ours.mkdir(mode=0o700)
    (shared / "data").symlink_to(ours)
    os.lchown(shared / "data", STRANGER, -1)
    with pytest.raises(NotTrusted, match="is a symbolic link of user 54321"):
        require_trusted_folder(shared / "data")


@needs_root
def test_a_place_of_a_strangers_is_refused_before_anything_is_made_there(folder: Path) -> None:
    os.chown(folder, STRANGER, -1)
    with pytest.raises(NotTrusted):
        make_trusted_folder(folder / "a" / "b")
    assert list(folder.iterdir()) == []


def test_created_folders_are_private(folder: Path) -> None:
    before = os.umask(0)
    try:
        make_trusted_folder(folder / "a" / "b")
        make_own_folder(folder / "a" / "b" / "c")
    finally:
        os.umask(before)
    for made in ("a", "a/b", "a/b/c"):
        assert (folder / made).stat().st_mode & 0o777 == 0o700


def test_a_folder_of_ours_that_was_left_open_is_closed(folder: Path) -> None:
    (folder / "runs").mkdir()
    (folder / "runs").chmod(0o777)
    make_own_folder(folder / "runs")
    assert (folder / "runs").stat().st_mode & 0o777 == 0o700


def test_links_inside_are_never_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "token").write_text("planted")
    (folder / "token").symlink_to(tmp_path / "elsewhere" / "token")
    (folder / "runs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotTrusted, match="is a symbolic link"):
        require_own_files(folder)
    with pytest.raises(NotTrusted, match="is a symbolic link"):
        require_own_files(folder / "runs")
    with pytest.raises(NotTrusted, match="is a symbolic link"):
        read_own_file(folder / "token")
    with pytest.raises(NotTrusted, match="is a symbolic link"):
        make_own_folder(folder / "runs")


@needs_root
def test_foreign_files_inside_are_refused(folder: Path) -> None:
    (folder / "pki").mkdir()
    (folder / "pki" / "ca.key").write_text("planted")
    require_own_files(folder, below=("pki", "absent"))
    os.chown(folder / "pki" / "ca.key", STRANGER, -1)
    require_own_files(folder)
    with pytest.raises(NotTrusted, match=r"ca\.key belongs to user 54321"):
        require_own_files(folder, below=("pki",))
    with pytest.raises(NotTrusted, match="belongs to user 54321"):
        read_own_file(folder / "pki" / "ca.key")


def test_a_file_that_others_may_write_to_is_refused_if_they_can_reach_it(folder: Path) -> None:
    (folder / "token").write_text("x")
    (folder / "token").chmod(0o666)
    require_own_files(folder)
    folder.chmod(0o711)
    with pytest.raises(NotTrusted, match=r"other users can write to .*token"):
        require_own_files(folder)


def test_a_fifo_in_place_of_a_file_is_refused_without_waiting(folder: Path) -> None:
    os.mkfifo(folder / "token", 0o600)
    with pytest.raises(NotTrusted, match="is not a regular file"):
        read_own_file(folder / "token")


def test_the_way_is_trusted_in_a_user_namespace_that_does_not_know_root(folder: Path) -> None:
    """There, `/` and all of root's files belong to the overflow uid."""
    program = (
        "import sys, pathlib; from onejob.trusted_paths import make_trusted_folder as make;"
        "make(pathlib.Path(sys.argv[1]))"
    )
    command = ["unshare", "--user", "--map-user=7", sys.executable, "-c", program]
    os.chown(folder, 0, 0) if os.geteuid() == 0 else None
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    if "unshare:" in done.stderr:
        pytest.skip(f"no user namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
