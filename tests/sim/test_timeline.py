"""Timeline of the machine: actions due at one moment run in the order of scheduling."""

from functools import partial
from random import Random

from sim.node.timeline import Timeline


def test_timeline_orders_events_by_time() -> None:
    """`now + (moment - now)` is not always `moment`: bytes of one connection overtook others."""
    rng = Random(1)
    for _ in range(200):
        timeline, happened = Timeline(), list[int]()
        moment = 10 + rng.random()
        for number in range(10):
            timeline.run_until(timeline.now + rng.random())
            timeline.at(moment, partial(happened.append, number))
        timeline.run_until(moment)
        assert happened == list(range(10))
