"""`onejob controller` as separate processes, next to a real API server."""

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from tests.upstream.cluster import _die_with_parent

#: Quick to take over, for runs in which leaders are killed all the time.
QUICK_ELECTION: Final = (
    "--leader-elect",
    "--leader-elect-lease-duration=4",
    "--leader-elect-renew-deadline=2.5",
    "--leader-elect-retry-period=0.5",
)
#: No service accounts: no controller creates the default one.
APISERVER_FLAGS: Final = ("--disable-admission-plugins=ServiceAccount",)


class Replica:
    """One process, which is ready when the constructor returns."""

    def __init__(self, kubeconfig: Path, log: Path, *options: str) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "onejob", "controller", "--kubeconfig", str(kubeconfig),
                    "--metrics-listen", "127.0.0.1:0", *options,
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=_die_with_parent,
            )  # fmt: skip
        assert self._process.stdout is not None
        found = re.search(r":(\d+)/metrics", self._process.stdout.readline())
        if found is None:
            raise RuntimeError(f"onejob controller did not start: {log.read_text()[-2000:]}")
        self._address = f"http://127.0.0.1:{found[1]}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def leading(self) -> bool:
        return "onejob_controller_leading 1" in self.metrics()

    def metrics(self) -> str:
        try:
            with urllib.request.urlopen(f"{self._address}/metrics", timeout=5) as answer:
                text: str = answer.read().decode()
                return text
        except (urllib.error.URLError, OSError):
            return ""

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        self._process.send_signal(how)
        code = self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code
