"""Controller on a real API server with only the permissions of `onejob manifests`.

python -m tests.upstream.least_privilege
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.upstream.cluster import Upstream
from tests.upstream.jobs import (
    a_real_cluster,
    client_of,
    create_job,
    judge,
    until_finished,
)
from tests.upstream.kubelet import Kubelet, Ledger
from tests.upstream.replicas import Replica

NAMESPACE = "onejob-system"
ACCOUNT = "onejob-controller"


def kubectl(cluster: Upstream, *arguments: str, text: str = "") -> str:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    result = subprocess.run(
        ["kubectl", *arguments],
        input=text, capture_output=True, text=True, env=environment, check=False, timeout=60,
    )  # fmt: skip
    if result.returncode:
        raise RuntimeError(f"kubectl {' '.join(arguments)}: {result.stderr}")
    return result.stdout


def as_account(cluster: Upstream, namespace: str) -> Path:
    """Return a kubeconfig of the controller's service account."""
    token = kubectl(cluster, "create", "token", ACCOUNT, "-n", namespace).strip()
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["context"]["namespace"] = namespace
    path = cluster.folder / f"kubeconfig-{namespace}"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path


def refusal(kubeconfig: Path, *options: str) -> str:
    """Return the error message of a controller that does not start."""
    result = subprocess.run(
        [sys.executable, "-m", "onejob", "controller", "--kubeconfig", str(kubeconfig), *options],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert result.returncode == 2, result
    return result.stderr.strip()


def install(cluster: Upstream, namespace: str, *options: str) -> None:
    printed = subprocess.run(
        [
            sys.executable, "-m", "onejob", "manifests", "--image=example.com/onejob:1",
            f"--namespace={namespace}", *options,
        ],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    print(kubectl(cluster, "apply", "-f", "-", text=printed), end="")


async def run(cluster: Upstream) -> list[str]:
    client = client_of(cluster)
    install(cluster, NAMESPACE)
    everywhere = as_account(cluster, NAMESPACE)
    install(cluster, "limited", "--watch=default")
    limited = as_account(cluster, "limited")
    print(refusal(limited, "--leader-elect"))
    kubelet = Kubelet(client)
    node = asyncio.create_task(kubelet.run())
    wrong: list[str] = []
    try:
        for name, kubeconfig, options in (
            ("everywhere", everywhere, ()),
            ("limited", limited, ("--namespace=default",)),
        ):
            log = cluster.folder / f"{name}.log"
            replica = Replica(kubeconfig, log, "--leader-elect", *options)
            kubelet.ledger = Ledger()
            key = await create_job(client, name, completions=50, parallelism=20)
            job = await until_finished(client, key, within=120)
            verdict = await judge(client, job, kubelet.ledger)
            code = replica.stop()
            print(f"{name}: {verdict.summary}, exit code {code}")
            wrong += verdict.wrong
            if code or "forbidden" in log.read_text():
                wrong.append(f"{name}: {log.read_text()[-1000:]}")
        return wrong
    finally:
        node.cancel()
        await asyncio.gather(node, return_exceptions=True)
        await client.close()


def main() -> int:
    why = Upstream.missing()
    if why:
        print(f"skipped: {why}")
        return 0
    with a_real_cluster() as cluster:
        wrong = asyncio.run(run(cluster))
    for line in wrong:
        print(f"wrong: {line}")
    print("failed" if wrong else "ok: the manifests grant what the controller needs")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
