"""Writing of keys, tokens and kubeconfigs, whatever already exists at their path."""

import os
from pathlib import Path

from onejob.api.access.private_files import write_private


def test_a_link_in_the_way_is_replaced_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / "kubeconfig").symlink_to(target)
    write_private(tmp_path / "kubeconfig", b"new")
    assert (tmp_path / "kubeconfig").read_bytes() == b"new"
    assert not (tmp_path / "kubeconfig").is_symlink()
    assert target.read_text() == "untouched"


def test_nor_is_one_in_the_way_of_the_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / f".kubeconfig.{os.getpid()}").symlink_to(target)
    write_private(tmp_path / "kubeconfig", b"new")
    assert target.read_text() == "untouched"
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["kubeconfig", "target"]
