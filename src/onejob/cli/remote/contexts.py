"""Resolution of `--on NAME` to a kubeconfig context or a mirror target.

`~/.kube/config` is read here and, for kept runs that name it, in `cli/sources/remote_runs.py`; no
command reads it unless a run was started with `--on`.
"""

from pathlib import Path
from typing import Final

from onejob.cli.errors import CommandError
from onejob.cli.kept_runs import RemotePlace
from onejob.cli.places import DataDir
from onejob.cli.sources.remote_runs import find_target
from onejob.client.kubeconfig import InvalidKubeconfig, merge_kubeconfigs

_FORCED: Final = "context:"
_RESERVED: Final = "slurm"
_SHOWN_CONTEXTS: Final = 8


def find_place(name: str, kubeconfig: str, data_dir: DataDir) -> RemotePlace:
    """Return the place that `--on` names. Contexts come before mirror targets.

    `kubeconfig` is one file or several, separated by colons; "" is `~/.kube/config`. Raises
    CommandError.
    """
    if name == _RESERVED:
        raise CommandError("--on slurm: not available yet", "use --on context:slurm for a context")
    context = name.removeprefix(_FORCED)
    if not context:
        raise CommandError("--on requires the name of a context", "for example --on prod")
    paths = [Path(part).expanduser().absolute() for part in kubeconfig.split(":") if part]
    given = bool(paths)
    paths = paths or [Path.home() / ".kube" / "config"]
    known: list[str] = []
    if given or paths[0].exists():
        try:
            config = merge_kubeconfigs(paths)
        except InvalidKubeconfig as error:
            raise CommandError(str(error), "select another file with --kubeconfig") from None
        known = [str(entry.get("name")) for entry in config.get("contexts", ())]
    if context in known:
        return RemotePlace(context, tuple(map(str, paths)))
    if not name.startswith(_FORCED) and (target := find_target(context, data_dir)) is not None:
        return target
    raise CommandError(
        f"--on {name}: no context of this name in {':'.join(map(str, paths))}",
        _next_step(known, paths, given=given),
    )


def _next_step(known: list[str], paths: list[Path], *, given: bool) -> str:
    if known:
        more = ", ..." if len(known) > _SHOWN_CONTEXTS else ""
        return f"contexts: {', '.join(known[:_SHOWN_CONTEXTS])}{more}"
    if given:
        return "it contains no contexts"
    return f"{paths[0]} does not exist or has no contexts; select a file with --kubeconfig"
