"""Scenario catalogue: question, probe at full and quick size, targets, peers and limits.

Figures of `PublishedPeer` were measured on an idle machine with two cores of the kind the targets
were set on, or published by their makers.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from onejob.benchmarks.results import Goal

Sizes = Mapping[str, int]


class Probe(msgspec.Struct, frozen=True):
    #: `module:function` in this package.
    function: str
    full: Sizes = {}
    quick: Sizes = {}


class MeasuredPeer(msgspec.Struct, frozen=True):
    """Peer or limit that is measured in the same run."""

    name: str
    probe: Probe


class PublishedPeer(msgspec.Struct, frozen=True):
    name: str
    figures: Mapping[str, float]


class Scenario(msgspec.Struct, frozen=True):
    name: str
    question: str
    probe: Probe
    targets: Mapping[str, Goal] = {}
    beside: tuple[MeasuredPeer, ...] = ()
    elsewhere: tuple[PublishedPeer, ...] = ()
    #: Node runtime for the Pods: a simulated node ends them at once and starts no process.
    node: Literal["simulated", "process", "none"] = "simulated"

    @property
    def title(self) -> str:
        return f"{self.question} (simulated node)" if self.node == "simulated" else self.question


def find(name: str) -> Scenario | None:
    return next((scenario for scenario in SCENARIOS if scenario.name == name), None)


def _at_least(value: float) -> Goal:
    return Goal("at least", value)


def _at_most(value: float, times: str = "") -> Goal:
    return Goal("at most", value, times)


def _one_job(completions: int, parallelism: int, *, indexed: int = 0) -> Probe:
    size = {"completions": completions, "parallelism": parallelism, "indexed": indexed}
    quick = {"completions": 10 * (few := min(parallelism, 20)), "parallelism": few}
    return Probe("control_plane:one_job", size, {**quick, "indexed": indexed})


def _bare_loops(completions: int, parallelism: int) -> tuple[MeasuredPeer, MeasuredPeer]:
    """Return limits with four writes per Pod and with three.

    Earlier figures were taken with four; onejob itself makes three.
    """
    size = {"completions": completions, "parallelism": parallelism}
    quick = {"completions": 200, "parallelism": min(parallelism, 20)}
    three = {"writes": 3}
    function = "limits:bare_pod_lives"
    return (
        MeasuredPeer("limit: bare loop", Probe(function, size, quick)),
        MeasuredPeer("limit: bare loop, 3 writes", Probe(function, size | three, quick | three)),
    )


def _real_processes(parallelism: int) -> MeasuredPeer:
    size = {"completions": 2_000, "parallelism": parallelism}
    quick = {"completions": 40, "parallelism": min(parallelism, 20)}
    return MeasuredPeer("onejob, real /bin/true", Probe("processes:one_job", size, quick))


def _spawn_probe(function: str) -> Probe:
    return Probe(
        function,
        {"processes": 2_000, "at_once": 8},
        {"processes": 40, "at_once": 8},
    )


def _watched_job_probe(*, watchers: int, slow: int) -> Probe:
    return Probe(
        "fan_out:one_job",
        {"completions": 20_000, "parallelism": 100, "watchers": watchers, "slow": slow},
        {"completions": 50, "parallelism": 10, "watchers": min(watchers, 3), "slow": slow},
    )


_CHEAP = {"CPU per pod, µs": _at_most(300)}

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "parallelism-10",
        "How fast is one Job at parallelism 10?",
        _one_job(10_000, 10),
        {"pods/s": _at_least(1_500), **_CHEAP},
        (*_bare_loops(10_000, 10), _real_processes(10)),
        (PublishedPeer("Kubernetes", {"pods/s": 9.9}),),
    ),
    Scenario(
        "parallelism-100",
        "How fast is one Job at parallelism 100?",
        _one_job(20_000, 100),
        {"pods/s": _at_least(4_000), **_CHEAP},
        (*_bare_loops(20_000, 100), _real_processes(100)),
        (PublishedPeer("Kubernetes", {"pods/s": 99}),),
    ),
    Scenario(
        "giant",
        "How long do 100,000 completions take at parallelism 1000, and how much memory?",
        _one_job(100_000, 1_000),
        {"seconds": _at_most(30), "peak RSS, MB": _at_most(300), **_CHEAP},
        _bare_loops(100_000, 1_000),
        (
            PublishedPeer(
                "Kubernetes", {"pods/s": 142, "CPU per pod, µs": 14_000, "peak RSS, MB": 1_900}
            ),
        ),
    ),
    Scenario(
        "giant-indexed",
        "And with an index each?",
        _one_job(100_000, 1_000, indexed=1),
        {"seconds": _at_most(30), "peak RSS, MB": _at_most(300), **_CHEAP},
        _bare_loops(100_000, 1_000),
        (
            PublishedPeer(
                "Kubernetes", {"pods/s": 108, "CPU per pod, µs": 14_000, "peak RSS, MB": 1_900}
            ),
        ),
    ),
    Scenario(
        "million",
        "How long do 1,000,000 completions take at parallelism 1000, and how much memory?",
        _one_job(1_000_000, 1_000),
        {"peak RSS, MB": _at_most(500)},
        (MeasuredPeer("onejob, 100,000 completions", _one_job(100_000, 1_000)),),
    ),
    Scenario(
        "scaling",
        "Does a Pod cost the same in a Job of 100,000 as in one of 100?",
        Probe(
            "scaling:cost_against_size",
            {"smallest": 100, "largest": 100_000, "parallelism": 100, "rounds": 5},
            {"smallest": 20, "largest": 200, "parallelism": 10, "rounds": 1},
        ),
        {"growth of cost, ×": _at_most(1.3)},
    ),
    Scenario(
        "many-jobs",
        "How fast are 100 Jobs of 20 Pods, parallelism 10 each?",
        Probe(
            "control_plane:many_jobs",
            {"jobs": 100, "completions": 20, "parallelism": 10},
            {"jobs": 5, "completions": 10, "parallelism": 5},
        ),
        {"pods/s": _at_least(2_000)},
        elsewhere=(PublishedPeer("Kubernetes", {"pods/s": 143}),),
    ),
    Scenario(
        "one-pod-jobs",
        "How fast are 10,000 Jobs of one Pod?",
        Probe(
            "control_plane:many_jobs",
            {"jobs": 10_000, "completions": 1, "parallelism": 1},
            {"jobs": 50, "completions": 1, "parallelism": 1},
        ),
    ),
    Scenario(
        "kep-2214",
        "How long does the mix of KEP-2214 take: 101 Jobs, 1,200 Pods?",
        Probe(
            "control_plane:kep_2214_mix",
            {"large": 1, "medium": 20, "small": 80, "scale": 1, "indexed": 1},
            {"large": 1, "medium": 2, "small": 8, "scale": 10, "indexed": 1},
        ),
        elsewhere=(
            # Its Pods sleep for 30 s, with 20 nodes and 100 requests per second.
            PublishedPeer("Kubernetes, by KEP-2214", {"seconds": 33.4}),
        ),
    ),
    Scenario(
        "cronjobs",
        "How late are the last Jobs of 1,000 CronJobs that are due in the same minute?",
        Probe("cronjobs:same_minute", {"cronjobs": 1_000}, {"cronjobs": 20}),
    ),
    Scenario(
        "workflow-chain",
        "What does a task in a chain of 100 cost beyond its Job?",
        Probe("workflows:chain", {"tasks": 100}, {"tasks": 5}),
        {"beyond the Job, ms/task": _at_most(5), "CPU of the Job, ×": _at_most(1.5)},
    ),
    Scenario(
        "workflow-long-chain",
        "What does a task in a chain of 1,000 cost beyond its Job?",
        Probe("workflows:chain", {"tasks": 1_000}, {"tasks": 5}),
        {"beyond the Job, ms/task": _at_most(5), "CPU of the Job, ×": _at_most(1.5)},
    ),
    Scenario(
        "workflow-fan-out",
        "What does a task cost beyond its Job if 1,000 run side by side?",
        Probe("workflows:side_by_side", {"tasks": 1_000}, {"tasks": 5}),
        {"beyond the Job, ms/task": _at_most(5), "CPU of the Job, ×": _at_most(1.5)},
    ),
    Scenario(
        "workflow-status",
        "How large is the status of a workflow of 10 Jobs with 100,000 Pods?",
        Probe("workflows:status_size", {"tasks": 10, "pods": 100_000}, {"tasks": 2, "pods": 20}),
        {"status, kB": _at_most(100)},
    ),
    Scenario(
        "ttl-backlog",
        "How long until 100,000 Jobs that expire at once are gone, and a fresh Job meanwhile?",
        Probe(
            "backlog:expiring_jobs",
            {"jobs": 100_000, "pods": 10_000},
            {"jobs": 200, "pods": 20},
        ),
        {"fresh Job p99, ms": _at_most(500)},
        (
            MeasuredPeer(
                "limit: bare SQLite",
                Probe(
                    "backlog:bare_deletions",
                    {"jobs": 100_000, "at_once": 20},
                    {"jobs": 200, "at_once": 20},
                ),
            ),
        ),
    ),
    Scenario(
        "latency",
        "How long does a one-Pod Job take from created to Complete, seen on a watch?",
        Probe("latency:one_pod_jobs", {"jobs": 1_000}, {"jobs": 20}),
        {"p50, ms": _at_most(15), "p99, ms": _at_most(100)},
        (
            MeasuredPeer(
                "limit: 5 commits", Probe("limits:five_commits", {"turns": 1_000}, {"turns": 20})
            ),
        ),
        (PublishedPeer("Kubernetes", {"p50, ms": 1_100}),),
    ),
    Scenario(
        "starvation",
        "How long does it take while a giant Job runs at parallelism 1000?",
        Probe(
            "latency:beside_a_giant",
            {"giant": 50_000, "parallelism": 1_000},
            {"giant": 200, "parallelism": 20},
        ),
        {"p99, ms": _at_most(500), "longest callback, CPU ms": _at_most(20)},
        elsewhere=(PublishedPeer("Kubernetes, at best", {"p99, ms": 6_000}),),
    ),
    Scenario(
        "exit-to-complete",
        "How long after a real process has ended is its Job Complete?",
        Probe("latency:exit_to_complete", {"jobs": 300}, {"jobs": 3}),
        node="process",
    ),
    Scenario(
        "processes",
        "How long do 2,000 real /bin/true take, 8 at once?",
        _spawn_probe("processes:by_onejob"),
        {"seconds": _at_most(2, "xargs")},
        (
            MeasuredPeer("onejob serve", _spawn_probe("served_processes:by_server")),
            MeasuredPeer(
                "onejob serve, unprivileged",
                _spawn_probe("served_processes:by_unprivileged_server"),
            ),
            MeasuredPeer("xargs", _spawn_probe("processes:by_xargs")),
            MeasuredPeer("GNU parallel", _spawn_probe("processes:by_gnu_parallel")),
            MeasuredPeer("HyperQueue", _spawn_probe("processes:by_hyperqueue")),
            MeasuredPeer("limit: spawn loop", _spawn_probe("processes:by_a_spawn_loop")),
        ),
        node="process",
    ),
    Scenario(
        "cold-start",
        "How long does `onejob run` of a hello Job take, the whole command?",
        Probe("commands:onejob_run", {"turns": 15}, {"turns": 1}),
        {"seconds": _at_most(0.5), "without YAML, seconds": _at_most(0.5)},
        (
            MeasuredPeer(
                "limit: bare Python", Probe("commands:bare_python", {"turns": 15}, {"turns": 1})
            ),
        ),
        (
            PublishedPeer("Kubernetes, boot and first Job", {"seconds": 9}),
            PublishedPeer("kind, boot", {"seconds": 47}),
            PublishedPeer("minikube, boot", {"seconds": 57}),
        ),
        node="process",
    ),
    Scenario(
        "idle",
        "What does an idle `onejob serve` use?",
        Probe(
            "serving:idle",
            {"settle_seconds": 5, "seconds": 20},
            {"settle_seconds": 0, "seconds": 1},
        ),
        {"RSS, MB": _at_most(60), "CPU, %": _at_most(0.5)},
        (MeasuredPeer("limit: bare server", Probe("serving:idle_bare_server")),),
        (PublishedPeer("Kubernetes", {"RSS, MB": 420}),),
        node="process",
    ),
    Scenario(
        "api",
        "How many requests does the API answer over HTTPS, and how fast are lists and watches?",
        Probe(
            "serving:by_onejob",
            {"alone": 2_000, "together": 10_000, "clients": 32, "watchers": 20, "lists": 10},
            {"alone": 20, "together": 100, "clients": 32, "watchers": 4, "lists": 2},
        ),
        {"creates/s, 1 client": _at_least(500), "creates/s, 32 clients": _at_least(1_200)},
        (
            MeasuredPeer(
                "limit: bare server",
                Probe(
                    "serving:by_a_bare_server",
                    {"alone": 5_000, "together": 25_000, "clients": 32},
                    {"alone": 50, "together": 250, "clients": 32},
                ),
            ),
        ),
        (
            PublishedPeer(
                "kube-apiserver",
                {
                    "creates/s, 1 client": 296,
                    "creates/s, 32 clients": 843,
                    "gets/s, 32 clients": 2_390,
                },
            ),
        ),
    ),
    Scenario(
        "restart",
        "How long after kill -9 with 10,000 live Pods does the server work on?",
        Probe("recovery:restart", {"pods": 10_000}, {"pods": 50}),
    ),
    Scenario(
        "finished",
        "How long after kill -9 with 100,000 finished objects does it serve, and list Jobs?",
        Probe(
            "recovery:among_finished",
            {"jobs": 90_000, "pods": 10_000},
            {"jobs": 600, "pods": 50},
        ),
        {"started after, s": _at_most(2)},
        (
            MeasuredPeer(
                "5,000 Jobs with their Pods",
                Probe(
                    "recovery:among_finished",
                    {"jobs": 5_000, "pods": 5_000},
                    {"jobs": 50, "pods": 50},
                ),
            ),
        ),
    ),
    Scenario(
        "fan-out",
        "What do 50 watchers of 20,000 Pods cost, and does a slow one delay the others?",
        _watched_job_probe(watchers=50, slow=0),
        beside=(
            MeasuredPeer("and one who hardly reads", _watched_job_probe(watchers=50, slow=1)),
            MeasuredPeer("nobody watches", _watched_job_probe(watchers=0, slow=0)),
        ),
    ),
    Scenario(
        "store",
        "How fast is the store alone, next to a bare SQLite loop with the same commits?",
        Probe(
            "store:by_onejob",
            {"writes_each": 1_000, "objects": 10_000, "changes": 20_000, "watchers": 20},
            {"writes_each": 5, "objects": 100, "changes": 400, "watchers": 4},
        ),
        beside=(
            MeasuredPeer(
                "limit: bare SQLite",
                Probe("store:by_a_bare_loop", {"writes_each": 1_000}, {"writes_each": 5}),
            ),
        ),
        node="none",
    ),
    Scenario(
        "operations",
        "How many operations does a Pod take? Counted in virtual time, the same everywhere.",
        Probe(
            "operation_counts:per_pod",
            {"completions": 2_000, "parallelism": 100},
            {"completions": 200, "parallelism": 20},
        ),
    ),
)
