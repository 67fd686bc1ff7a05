"""`onejob validate`: manifest validation without a server."""

from typing import TYPE_CHECKING

import click

from onejob.cli.completing import complete_file
from onejob.cli.errors import EXIT_OK, EXIT_USAGE, CommandError
from onejob.cli.options import output_option

if TYPE_CHECKING:
    from onejob.cli.manifests.loading import Manifest

_EPILOG = """\b
Examples:
  onejob validate job.yaml                    # any kind that onejob supports
  onejob validate ci/ cron.yaml               # directories and files
  onejob validate -o json job.yaml            # for editors and scripts
  onejob validate --for kubernetes job.yaml   # portability to a cluster

Exit code: 0 if no problems were found, 2 otherwise. Each problem is one line on stderr with file,
document and line."""


#: Kinds of volumes that Pods get; images only with podman.
_PROVIDED = frozenset(
    (
        "configMap", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image",
        "persistentVolumeClaim", "projected", "secret",
    )
)  # fmt: skip


@click.command(epilog=_EPILOG, short_help="Check manifests")
@click.argument("files", nargs=-1, metavar="FILE...", shell_complete=complete_file)
@click.option(
    "-n",
    "--namespace",
    default="default",
    metavar="NAME",
    help="Namespace of manifests that specify none.",
)
@click.option(
    "--for",
    "target",
    type=click.Choice(["onejob", "kubernetes"]),
    default="onejob",
    help="kubernetes: also report what a cluster would not accept.",
)
@click.option(
    "--feature-gates", default="", metavar="NAME=BOOL,...", help="Enable or disable features."
)
@output_option("json")
def command(
    files: tuple[str, ...], namespace: str, target: str, feature_gates: str, output: str | None
) -> int:
    """Check manifests like an API server, without starting or sending anything."""
    import msgspec

    from onejob.cli.manifests.checking import manifest_warnings
    from onejob.cli.manifests.loading import InvalidManifests, nothing_in, scan_manifests
    from onejob.cli.manifests.portability import portability_problems, portability_warnings
    from onejob.cli.manifests.sending import print_warnings
    from onejob.cli.run.plan import server_problems
    from onejob.clock import SystemClock
    from onejob.gates import UnknownGate, note_without_effect, parse_gates

    if not files:
        raise CommandError("which files?", "for example: onejob validate job.yaml")
    try:
        gates = parse_gates(feature_gates)
    except UnknownGate as error:
        raise CommandError(str(error)) from None
    if note := note_without_effect(gates):
        click.echo(note, err=True)
    manifests, problems = scan_manifests(files)
    now = SystemClock().now()
    for manifest in manifests:
        found = server_problems(manifest, namespace, gates, now)
        if not found and target == "kubernetes":
            found = portability_problems(manifest)
        problems.extend(found)
        if not found and not output:
            print_warnings(
                portability_warnings(manifest)
                if target == "kubernetes"
                else [*manifest_warnings(manifest, gates), *_unprovided_volumes(manifest)]
            )
    if output:
        print(msgspec.json.encode({"valid": not problems, "problems": problems}).decode())
        return EXIT_USAGE if problems else EXIT_OK
    if problems:
        raise InvalidManifests(problems)
    if not manifests:
        raise CommandError(nothing_in(files))
    count = f"{len(manifests)} object{'s' if len(manifests) != 1 else ''}"
    print(f"{count} checked, no problems found")
    return EXIT_OK


def _unprovided_volumes(manifest: "Manifest") -> list[str]:
    """Return warnings about volumes that no Pod of onejob gets, so that it could never start."""
    from onejob.objects.meta import CRONJOBS, JOBS, PODS

    spec, path = manifest.document.get("spec") or {}, "spec"
    if manifest.kind.resource == CRONJOBS:
        spec, path = spec["jobTemplate"]["spec"], "spec.jobTemplate.spec"
    if manifest.kind.resource in (CRONJOBS, JOBS):
        spec, path = spec["template"]["spec"], f"{path}.template.spec"
    elif manifest.kind.resource != PODS:
        return []
    return [
        str(
            manifest.problem(
                f"{path}.volumes[{index}].{source}",
                "onejob provides no such volumes, so the Pod cannot start (use emptyDir, "
                "hostPath or persistentVolumeClaim)",
            )
        )
        for index, volume in enumerate(spec.get("volumes") or ())
        for source in volume
        if source != "name" and source not in _PROVIDED
    ]
