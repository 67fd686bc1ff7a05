"""`onejob schema`: JSON Schema of manifests, for editors."""

import click

from onejob.cli.errors import CommandError
from onejob.cli.options import output_option

_EPILOG = """\b
Examples:
  onejob schema > onejob.schema.json      # all kinds
  onejob schema job > job.schema.json     # one kind
  onejob schema cronjob -o yaml

First line of a manifest for editors with the YAML language server:

\b
  # yaml-language-server: $schema=onejob.schema.json"""


@click.command(epilog=_EPILOG, short_help="Print a JSON Schema of manifests")
@click.argument("kind", required=False)
@output_option("json", "yaml")
def command(kind: str | None, output: str | None) -> int:
    """Print the JSON Schema (draft 7) of a kind, or of all kinds, with the fields of onejob."""
    from onejob.api.schema.json_schema import json_schema
    from onejob.cli.display.output import rendered
    from onejob.cli.known_kinds import BUILT_IN
    from onejob.wire.kinds import KINDS

    if kind is None:
        kinds = [one for one in KINDS if "create" in one.verbs and "get" in one.verbs]
    else:
        kinds = [BUILT_IN.named(kind)]
        if "create" not in kinds[0].verbs:
            raise CommandError(f"{kind}: objects of this kind cannot be created", "choose another")
    print(rendered(json_schema(kinds), output or "json"), end="")
    return 0
