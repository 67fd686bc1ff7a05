"""All schedules in all zones over four whole years: `python -m tests.planning.cron_span`."""

import sys

from onejob.planning.cronjob.schedule import parse_schedule
from tests.planning.cron_reference import FIRST_DAY, LAST_DAY, SCHEDULES, ZONES, times_by_looking
from tests.planning.schedule_support import times_by_next


def main() -> int:
    wrong = 0
    for zone in ZONES:
        expected = times_by_looking(zone, FIRST_DAY, LAST_DAY)
        for text in SCHEDULES:
            found = times_by_next(parse_schedule(text, zone), FIRST_DAY, LAST_DAY)
            if found != expected[text]:
                wrong += 1
                odd = sorted(set(found) ^ set(expected[text]))
                print(f"{zone}: {text!r} differs at {len(odd)} times, first {odd[0]}")
        print(f"{zone}: {sum(map(len, expected.values()))} times compared", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
