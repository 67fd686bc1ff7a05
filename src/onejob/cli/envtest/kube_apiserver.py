"""kube-apiserver stand-in for envtest: `onejob serve` with state that is deleted at exit.

Started by the launcher that `onejob envtest-assets` writes, with options of `onejob serve`, `--`
and then kube-apiserver's flags.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onejob.cli.envtest.flags import ServeOptions, UnsupportedFlag, read_flags, serve_options

#: envtest searches this text for --insecure-port, and passes that flag if it finds it.
_HELP: Final = """\
kube-apiserver for envtest, by onejob

      --authorization-mode strings      RBAC is what there is
      --bind-address ip                 (default 127.0.0.1)
      --cert-dir string                 apiserver.crt and apiserver.key in it are used
      --client-ca-file string
      --feature-gates mapStringBool     those that onejob has
      --secure-port int                 (default 6443)
      --tls-cert-file string
      --tls-private-key-file string

Other flags are accepted and have no effect.
"""


def main(arguments: Sequence[str]) -> int:
    split = arguments.index("--")
    own, flags = arguments[:split], arguments[split + 1 :]
    if {"-h", "--help"} & set(flags):
        sys.stdout.write(_HELP)
        return 0
    from onejob.gates import DEFAULTS

    try:
        given = read_flags(flags)
        chosen = serve_options(given, DEFAULTS.keys(), _files(dict(given).get("cert-dir", "")))
    except UnsupportedFlag as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for note in chosen.notes:
        print(f"note: {note}", file=sys.stderr)
    sys.stderr.flush()
    return _serve(own, chosen)


def _files(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder)) if folder else frozenset()
    except OSError:
        # kube-apiserver creates a missing folder; here nothing would be written to it.
        return frozenset()


def _serve(own: Sequence[str], chosen: ServeOptions) -> int:
    import shutil
    import tempfile

    from onejob.cli.main import run_command

    state = tempfile.mkdtemp(prefix="onejob-envtest-", dir=_place_for_state(chosen.cert_dir))
    try:
        return run_command(
            ["serve", f"--listen={chosen.listen}", f"--data-dir={state}", *own, *chosen.options]
        )
    finally:
        shutil.rmtree(state, ignore_errors=True)


def _place_for_state(cert_dir: str) -> str | None:
    """Return the parent folder of the state: --cert-dir, or None for the temporary folder.

    envtest removes --cert-dir at the end, also after a kill -9. It is used if no other user can
    write there.
    """
    from onejob.trusted_paths import NotTrusted, require_trusted_folder

    if not cert_dir or not os.access(cert_dir, os.W_OK):
        return None
    try:
        require_trusted_folder(Path(cert_dir).absolute())
    except (NotTrusted, OSError):
        return None
    return cert_dir


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # As in `cli.main`: everything is closed already, and a hanging thread must not delay the exit.
    os._exit(code)
