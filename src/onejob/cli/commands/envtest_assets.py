"""`onejob envtest-assets`: stand-ins for etcd and kube-apiserver in operators' envtest suites."""

import sys
from pathlib import Path
from typing import Final

import click

from onejob.cli.errors import CommandError

_EPILOG = """\b
Examples:
  eval "$(onejob envtest-assets ~/.cache/onejob-envtest)"; go test ./...
  onejob envtest-assets bin/envtest
  KUBEBUILDER_ASSETS=$PWD/bin/envtest make test
  onejob envtest-assets --simulate-pods bin/envtest   # Jobs complete"""

_MARK: Final = "# Written by onejob envtest-assets."
_API_ONLY: Final = ("--controllers=", "--no-node")
_SIMULATED: Final = ("--runtime=simulated",)


@click.command("envtest-assets", epilog=_EPILOG, short_help="Run envtest suites on onejob")
@click.option(
    "--simulate-pods",
    is_flag=True,
    help="Run all controllers and a node with simulated Pods. [default: only the API]",
)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def command(folder: Path, simulate_pods: bool) -> int:
    """Write kube-apiserver and etcd programs that run onejob to DIR, for controller-runtime's
    envtest, and a link to kubectl if it is installed.

    Evaluate the printed line to make envtest use them. As with the original programs, there is only
    the API: no controllers, no nodes.
    """
    place = folder.absolute()
    options = _SIMULATED if simulate_pods else _API_ONLY
    try:
        place.mkdir(parents=True, exist_ok=True)
        _write_launcher(place / "kube-apiserver", "kube_apiserver", (*options, "--"))
        _write_launcher(place / "etcd", "etcd", ())
        _link_kubectl(place / "kubectl")
    except OSError as error:
        raise CommandError(
            f"cannot write to {place}: {error.strerror or error}", "choose another directory"
        ) from None
    import shlex

    print(f"export KUBEBUILDER_ASSETS={shlex.quote(str(place))}")
    return 0


def _write_launcher(path: Path, module: str, options: tuple[str, ...]) -> None:
    import os
    import shlex

    if path.is_symlink() or (path.exists() and _MARK.encode() not in path.read_bytes()[:200]):
        raise CommandError(
            f"{path} exists and was not written by this command",
            "choose another directory, or remove the file",
        )
    # -P: do not import modules from the working directory of the tests.
    words = (sys.executable, "-P", "-m", f"onejob.cli.envtest.{module}", *options)
    text = f'#!/bin/sh\n{_MARK}\nexec {shlex.join(words)} "$@"\n'
    # Renamed into place: a suite that starts right now finds the old file or the new one.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.chmod(0o755)
    temporary.replace(path)


def _link_kubectl(path: Path) -> None:
    import os
    import shutil

    if os.path.lexists(path):
        return
    elsewhere = [
        folder
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if Path(folder).absolute() != path.parent
    ]
    found = shutil.which("kubectl", path=os.pathsep.join(elsewhere))
    if found is None:
        print("note: kubectl not found on the PATH; no link was created", file=sys.stderr)
        return
    path.symlink_to(Path(found).absolute())
