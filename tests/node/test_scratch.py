"""Working folders of Pods: empty for every Pod, recreated only when necessary."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from onejob.node.process.scratch import ScratchFolders


class Removals:
    def __init__(self) -> None:
        self.paths: list[str] = []

    def __call__(self, path: str) -> None:
        self.paths.append(path)


@pytest.fixture
def removals() -> Removals:
    return Removals()


@pytest.fixture
def folders(tmp_path: Path, removals: Removals) -> ScratchFolders:
    return ScratchFolders(str(tmp_path / "scratch"), removals)


def test_scratch_folder_is_exclusive_to_pod(folders: ScratchFolders) -> None:
    first, second = folders.of("a"), folders.of("b")
    assert first != second
    assert (folders.of("a"), folders.of("b")) == (first, second)
    assert os.path.isdir(first)


def test_a_folder_that_was_left_as_it_was_made_is_handed_on(
    folders: ScratchFolders, removals: Removals
) -> None:
    path = folders.of("a")
    folders.release("a")
    assert folders.of("b") == path
    assert removals.paths == []


def write(folder: Path) -> None:
    (folder / "file").write_text("x")


def date(folder: Path) -> None:
    """Change the folder's ctime; repeats until the kernel's coarse clock has advanced."""
    before = folder.stat().st_ctime_ns
    while folder.stat().st_ctime_ns == before:
        os.utime(folder)


@pytest.mark.parametrize(
    "touch",
    [write, date, lambda folder: folder.chmod(0o700), os.rmdir],
    ids=["written to", "dated", "closed to others", "removed"],
)
def test_a_folder_that_was_touched_is_never_used_again(
    folders: ScratchFolders, removals: Removals, touch: Callable[[Path], None]
) -> None:
    path = folders.of("a")
    touch(Path(path))
    folders.release("a")
    assert folders.of("b") != path
    assert removals.paths == [path]


def test_a_folder_that_something_may_still_use_is_not_handed_on(
    folders: ScratchFolders, removals: Removals
) -> None:
    path = folders.of("a")
    folders.exclude_from_reuse("a")
    folders.release("a")
    assert folders.of("b") != path
    assert removals.paths == [path]


def test_close_keeps_only_folders_in_use(folders: ScratchFolders, removals: Removals) -> None:
    idle = folders.of("a")
    folders.of("b")
    folders.release("a")
    folders.close()
    assert removals.paths == [idle]


def test_parent_of_scratch_folders_is_private(
    tmp_path: Path, folders: ScratchFolders, removals: Removals
) -> None:
    folders.of("a")
    above = tmp_path / "scratch"
    assert above.stat().st_mode & 0o777 == 0o700
    # As an earlier version made it.
    above.chmod(0o755)
    ScratchFolders(str(above), removals).inherit({})
    assert above.stat().st_mode & 0o777 == 0o700


def test_inherited_folders_are_kept_while_pods_exist(
    tmp_path: Path, folders: ScratchFolders, removals: Removals
) -> None:
    used, unused = folders.of("a"), folders.of("b")
    next_life = ScratchFolders(str(tmp_path / "scratch"), removals)
    next_life.inherit({"a": used, "c": "/somewhere/else"})
    assert removals.paths == [unused]
    assert next_life.of("a") == used
    assert next_life.of("new") not in (used, unused)
    next_life.release("a")
    assert removals.paths == [unused, used]
