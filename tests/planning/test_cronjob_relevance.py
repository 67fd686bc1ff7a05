"""Filter of CronJob changes: which cause a sync, and which only echo our own writes."""

import msgspec
import pytest

from onejob.objects.cronjob import CronJob, CronJobStatus
from onejob.objects.job import Job
from onejob.planning.cronjob.relevance import cronjob_change_matters, job_change_matters
from tests.planning.cronjob_support import a_cronjob, a_job, at

CRONJOB = a_cronjob(active=("one",))
RUNNING = a_job("one")
STARTED = a_job("one", started="10:00")
COMPLETE = a_job("one", "Complete", started="10:00", completed="10:05")


@pytest.mark.parametrize(
    ("old", "new", "starting", "news"),
    [
        pytest.param(None, RUNNING, "one", False, id="the Job that is being started appears"),
        pytest.param(None, RUNNING, "two", True, id="a Job that somebody else made"),
        pytest.param(None, COMPLETE, "one", True, id="it has ended before it was seen"),
        pytest.param(RUNNING, STARTED, "one", False, id="it has begun"),
        pytest.param(STARTED, COMPLETE, "", True, id="it has ended"),
        pytest.param(COMPLETE, COMPLETE, "", False, id="some other field"),
        pytest.param(RUNNING, a_job("one", owner=None), "", True, id="it was let go"),
        pytest.param(a_job("one", owner=None), RUNNING, "one", True, id="it was adopted"),
        pytest.param(RUNNING, None, "one", True, id="it is gone while it ran"),
        pytest.param(COMPLETE, None, "", True, id="it is gone, but still listed as active"),
        pytest.param(a_job("old", "Failed"), None, "", False, id="an old one is gone"),
    ],
)
def test_a_change_of_a_job_is_news_if_a_sync_could_see_it(
    old: Job | None, new: Job | None, starting: str, news: bool
) -> None:
    assert job_change_matters(old, new, cronjob=CRONJOB, starting=starting) is news


def test_the_end_of_a_job_is_news_while_its_cronjob_is_not_known() -> None:
    assert job_change_matters(a_job("old", "Failed"), None, cronjob=None)


WRITTEN = CronJobStatus(last_schedule_time=at("10:00"))


def _with(cronjob: CronJob, status: CronJobStatus, generation: int = 1) -> CronJob:
    metadata = msgspec.structs.replace(cronjob.metadata, generation=generation)
    return msgspec.structs.replace(cronjob, status=status, metadata=metadata)


BEFORE = _with(CRONJOB, CronJobStatus())


@pytest.mark.parametrize(
    ("new", "written", "news"),
    [
        pytest.param(_with(CRONJOB, WRITTEN), WRITTEN, False, id="our own status comes back"),
        pytest.param(_with(CRONJOB, WRITTEN), None, True, id="nothing was written"),
        pytest.param(_with(CRONJOB, CronJobStatus()), WRITTEN, True, id="someone else's status"),
        pytest.param(_with(CRONJOB, WRITTEN, 2), WRITTEN, True, id="its spec was changed too"),
        pytest.param(
            _with(a_cronjob(deleting=True), WRITTEN), WRITTEN, True, id="it is being deleted"
        ),
    ],
)
def test_a_change_of_the_cronjob_is_news_unless_it_is_what_we_wrote(
    new: CronJob, written: CronJobStatus | None, news: bool
) -> None:
    assert cronjob_change_matters(BEFORE, new, written) is news
