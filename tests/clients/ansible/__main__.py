"""`make ansible`: run the playbook twice against `onejob serve`; the second run changes nothing."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.serving import a_server

_PLAYBOOK = Path(__file__).with_name("playbook.yaml")
_RECAP = re.compile(r"ok=(\d+)\s+changed=(\d+)\s+unreachable=0\s+failed=0")
_PATIENCE_SECONDS = 900.0


def main(folder: Path) -> int:
    with tempfile.TemporaryDirectory() as name, a_server(Path(name)) as server:
        environment = {
            **os.environ,
            "K8S_AUTH_KUBECONFIG": str(server.kubeconfig),
            "ANSIBLE_LOCAL_TEMP": f"{name}/ansible",
            "ANSIBLE_REMOTE_TEMP": f"{name}/ansible",
            "ANSIBLE_PYTHON_INTERPRETER": str(folder / "python"),
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
        }
        changes = []
        for _ in range(2):
            done = subprocess.run(
                [str(folder / "ansible-playbook"), "--diff", str(_PLAYBOOK)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_PATIENCE_SECONDS,
                check=False,
            )
            recap = _RECAP.search(done.stdout)
            if done.returncode or recap is None:
                _report(f"failed:\n{done.stdout}\n{done.stderr}\n{server.log[-2000:]}")
                return 1
            _report(recap[0])
            changes.append(int(recap[2]))
        if changes[0] == 0 or changes[1] != 0:
            _report(f"the second run reports changes:\n{done.stdout}")
            return 1
    return 0


def _report(text: str) -> None:
    print(f"ansible: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
