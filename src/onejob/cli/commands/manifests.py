"""`onejob manifests`: Kubernetes manifests that install the controller in a cluster."""

import click

from onejob.cli.errors import CommandError
from onejob.cli.options import require_manager_name

_EPILOG = """\b
Examples:
  onejob manifests --image example.com/onejob:1 | kubectl apply -f -
  onejob manifests --image example.com/onejob:1 --watch team-a > onejob.yaml

The image is built by `docker build -t IMAGE .` in onejob's source."""


@click.command(epilog=_EPILOG, short_help="Print what installs onejob in a cluster")
@click.option(
    "--image",
    required=True,
    metavar="IMAGE",
    help="The image of onejob, as the cluster's nodes pull it.",
)
@click.option(
    "-n",
    "--namespace",
    default="onejob-system",
    show_default=True,
    metavar="NAME",
    help="Where the controller runs.",
)
@click.option(
    "--watch",
    multiple=True,
    metavar="NAMESPACE",
    help="Run Jobs of this namespace only; may be repeated. [default: all]",
)
@click.option(
    "--manager-name",
    default="onejob.dev/job-controller",
    show_default=True,
    metavar="NAME",
    help="What Jobs say in spec.managedBy to be run by it.",
)
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="One of them works at a time.",
)
@click.option(
    "--mirror",
    is_flag=True,
    help="It also runs Jobs on other clusters, and so reads Secrets: name namespaces with --watch.",
)
def command(
    image: str,
    namespace: str,
    watch: tuple[str, ...],
    manager_name: str,
    replicas: int,
    mirror: bool,
) -> int:
    """Print a service account, the permissions it needs and a Deployment, as YAML.

    The controller asks for exactly these permissions when it starts.
    """
    import yaml

    from onejob.cluster.manifests import Installation, manifests
    from onejob.wire.names import label_errors

    require_manager_name(manager_name)
    for name in (namespace, *watch):
        if label_errors(name):
            raise CommandError(f"{name!r} cannot be the name of a namespace")
    if not image.strip() or any(space in image for space in " \t\n"):
        raise CommandError(f"{image!r} cannot be the name of an image")
    watched = tuple(dict.fromkeys(watch))
    wanted = Installation(namespace, image, manager_name, watched, replicas, mirror)
    documents = [_without_anchors(document) for document in manifests(wanted)]
    print(yaml.safe_dump_all(documents, sort_keys=False), end="")
    return 0


def _without_anchors(document: object) -> object:
    """Return a deep copy without shared objects, which YAML would write as anchors and aliases."""
    import json

    return json.loads(json.dumps(document))
