"""Outputs of deleted Jobs, read from the data dir without a running server."""

from collections.abc import Iterator

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.sources.selection import Sources
from onejob.node.outputs.archive import tar_pieces
from onejob.node.outputs.folders import kept_outputs, outputs_of_job


def deleted_outputs(where: Sources, name: str, part: str, index: int | None) -> Iterator[bytes]:
    """Return an archive of the kept outputs of the newest Job that had this name.

    Raises CommandError if there are none.
    """
    if where.kubeconfig is not None:
        raise CommandError(
            "outputs of deleted Jobs are available only in the server's data directory",
            "run the command there, without --kubeconfig",
        )
    data_dir = where.data_dir.server
    found = [
        kept.record
        for kept in kept_outputs(data_dir, lambda record: record.job == name)
        if where.namespace in ("", kept.record.namespace)
    ]
    if not found:
        raise CommandError(f"no kept outputs of job/{name} found", exit_code=EXIT_FAILED)
    newest = max(found, key=lambda record: record.started_at)
    outputs = outputs_of_job(data_dir, newest.namespace, newest.job_uid)
    if index is not None:
        outputs = [kept for kept in outputs if kept.record.index == index]
    flat = index is not None or len(outputs) == 1
    return tar_pieces([("" if flat else kept.place, kept.files) for kept in outputs], part)
