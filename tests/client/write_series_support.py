"""Committer whose commits can be made to fail."""

import asyncio

from onejob.store.base import CommitFailed
from onejob.store.writer import Done, Job, LoopCommitter


class FailingCommitter(LoopCommitter):
    """Committer that refuses chosen commits, as a full disk does."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.fails_at: set[int] = set()

    def submit(self, job: Job, done: Done) -> None:
        self.commits += 1
        if self.commits in self.fails_at:
            failure = CommitFailed("the disk is full")
            asyncio.get_running_loop().call_soon(lambda: done(failure))
        else:
            super().submit(job, done)
