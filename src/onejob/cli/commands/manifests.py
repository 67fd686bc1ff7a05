"""`onejob manifests`: Kubernetes manifests that install the controller in a cluster."""

import click

from onejob.cli.errors import CommandError
from onejob.cli.options import require_manager_name

_EPILOG = """\b
Examples:
  onejob manifests --image example.com/onejob:1 | kubectl apply -f -
  onejob manifests --image example.com/onejob:1 --watch team-a > onejob.yaml

Build the image with `docker build -t IMAGE .` in the source directory of onejob."""


@click.command(epilog=_EPILOG, short_help="Print the manifests that install onejob in a cluster")
@click.option(
    "--image",
    required=True,
    metavar="IMAGE",
    help="Image of onejob.",
)
@click.option(
    "-n",
    "--namespace",
    default="onejob-system",
    show_default=True,
    metavar="NAME",
    help="Namespace of the controller.",
)
@click.option(
    "--watch",
    multiple=True,
    metavar="NAMESPACE",
    help="Run only Jobs of this namespace; may be repeated. [default: all]",
)
@click.option(
    "--manager-name",
    default="onejob.dev/job-controller",
    show_default=True,
    metavar="NAME",
    help="Run Jobs with this value of spec.managedBy.",
)
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Number of replicas; one is active at a time.",
)
@click.option(
    "--mirror",
    is_flag=True,
    help="Also run mirrored Jobs, which requires reading Secrets: restrict namespaces with "
    "--watch.",
)
@click.option(
    "--workflows",
    is_flag=True,
    help="Also run Workflows and CronWorkflows, and print the definitions of these kinds.",
)
def command(
    image: str,
    namespace: str,
    watch: tuple[str, ...],
    manager_name: str,
    replicas: int,
    mirror: bool,
    workflows: bool,
) -> int:
    """Print a service account, its permissions and a Deployment of the controller, as YAML.

    The controller checks for exactly these permissions when it starts.
    """
    import yaml

    from onejob.cluster.manifests import Installation, manifests
    from onejob.wire.names import label_errors

    require_manager_name(manager_name)
    for name in (namespace, *watch):
        if label_errors(name):
            raise CommandError(f"invalid namespace {name!r}")
    if not image.strip() or any(space in image for space in " \t\n"):
        raise CommandError(f"invalid image {image!r}")
    watched = tuple(dict.fromkeys(watch))
    wanted = Installation(namespace, image, manager_name, watched, replicas, mirror, workflows)
    documents = [_without_anchors(document) for document in manifests(wanted)]
    print(yaml.safe_dump_all(documents, sort_keys=False), end="")
    return 0


def _without_anchors(document: object) -> object:
    """Return a deep copy without shared objects, which YAML would write as anchors and aliases."""
    import json

    return json.loads(json.dumps(document))
