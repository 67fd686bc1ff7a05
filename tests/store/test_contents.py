"""Contents of the store in memory, and leftovers of deleted objects."""

from onejob.store.base import Change
from onejob.store.contents import Contents
from tests.store.support import pod


def test_names_that_come_and_go_leave_nothing_behind() -> None:
    contents = Contents()
    contents.apply(Change(pod("stays"), 1, b"", None, cold=True))
    for number in range(20_000):
        contents.apply(Change(pod(f"p{number}"), number, b"", None))
        contents.remove(pod(f"p{number}"))
    bucket = contents.bucket("pods", "default")
    assert bucket is not None
    assert list(bucket.names.after(None)) == ["stays"]
    contents.remove(pod("stays"))
    assert contents.bucket("pods", "default") is None
    assert list(contents.namespaces("pods")) == []
