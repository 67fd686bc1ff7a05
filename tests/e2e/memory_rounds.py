"""A server near its limit of address space, under large requests, Jobs, lists and watches.

    python -m tests.e2e.memory_rounds [--rounds 5] [--spare-mb 15 20 25 30 40]

Each round starts a real `onejob serve`, sets RLIMIT_AS to its present size plus some megabytes, and
sends requests until allocations fail. Then the limit is lifted. The server must live, every
acknowledged object must exist, and every acknowledged Job must complete. Run by hand: a C library
that does not check an allocation may still end the process.
"""

import argparse
import http.client
import json
import resource
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.api.worst_cases import CONFIGMAPS, JOBS, JSON, configmap, encoded, job
from tests.api.worst_support import Api
from tests.e2e.serving import Server, a_server

_LARGE_BYTES = 900_000


class Round:
    def __init__(self, server: Server) -> None:
        self.connect(server)
        self.acknowledged: set[str] = set()
        self.codes: Counter[str] = Counter()

    def connect(self, server: Server) -> None:
        self._api = Api.of(server)

    def create_large(self, number: int) -> None:
        document = configmap({"k": "x" * _LARGE_BYTES})
        self._create(CONFIGMAPS, {**document, "metadata": {"name": f"large-{number}"}})

    def create_job(self, number: int) -> None:
        document = job(suspend=False, completions=3, parallelism=3)
        document["spec"]["template"]["spec"].pop("schedulingGates", None)
        self._create(JOBS, {**document, "metadata": {"name": f"job-{number}"}})

    def read_all(self, number: int) -> None:
        query = "?watch=1&timeoutSeconds=2&resourceVersion=0" if number % 2 else ""
        self._send("GET", CONFIGMAPS + query)

    def _create(self, path: str, document: dict[str, object]) -> None:
        if self._send("POST", path, encoded(document)) == 201:
            self.acknowledged.add(document["metadata"]["name"])  # type: ignore[index]

    def _send(self, method: str, path: str, body: bytes = b"") -> int:
        try:
            code, _ = self._api.request(method, path, body, Content_Type=JSON)
        except (OSError, http.client.HTTPException):
            self.codes["no answer"] += 1
            return 0
        self.codes[str(code)] += 1
        return code

    def missing(self) -> set[str]:
        """Return the acknowledged objects that do not exist, and Jobs that are not complete."""
        found = set()
        for item in json.loads(self._api.request("GET", CONFIGMAPS)[1])["items"]:
            found.add(item["metadata"]["name"])
        for item in json.loads(self._api.request("GET", JOBS)[1])["items"]:
            if item.get("status", {}).get("succeeded") == 3:
                found.add(item["metadata"]["name"])
        return self.acknowledged - found


def run_round(folder: Path, spare_bytes: int) -> str:
    with a_server(folder / "data", "--runtime", "simulated") as server:
        assert server.process is not None
        pid = server.process.pid
        time.sleep(2)
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + spare_bytes
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        attempt = Round(server)
        with ThreadPoolExecutor(24) as pool:
            for number in range(100):
                pool.submit(attempt.create_large, number)
                if number % 5 == 0:
                    pool.submit(attempt.create_job, number)
                if number % 4 == 0:
                    pool.submit(attempt.read_all, number // 4)
        shown = f"{len(attempt.acknowledged)} acknowledged, {dict(attempt.codes)}"
        outcome = "fine"
        if (code := server.process.poll()) is not None:
            outcome = f"ENDED with {code}"
            print("".join(server.log.rpartition("Fatal Python error")[1:])[:2000])
            server.start()
            attempt.connect(server)
        else:
            resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        for _ in range(30):
            time.sleep(1)
            if not (missing := attempt.missing()):
                return f"{outcome}: {shown}"
        return f"{outcome}, LOST {sorted(missing)}: {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--spare-mb", type=int, nargs="*", default=[15, 20, 25, 30, 40])
    options = parser.parse_args()
    for _ in range(options.rounds):
        for spare in options.spare_mb:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                print(f"{spare} MB spare: {run_round(Path(folder), spare << 20)}", flush=True)


if __name__ == "__main__":
    main()
