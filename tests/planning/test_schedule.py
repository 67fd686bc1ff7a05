"""Cron schedules: accepted and refused texts with error messages, and due times."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.planning.cronjob.schedule import (
    ScheduleError,
    parse_schedule,
    valid_time_zone,
)
from tests.planning.cron_reference import (
    DAY,
    FIRST_DAY,
    LAST_DAY,
    ODD_ZONE,
    SCHEDULES,
    ZONES,
    times_by_looking,
    transitions,
)
from tests.planning.schedule_support import times_by_next


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize("zone", ZONES)
def test_schedule_follows_wall_clock_around_dst_changes(zone: str) -> None:
    changes = transitions(zone, FIRST_DAY, LAST_DAY) or [FIRST_DAY]
    for change in changes:
        first, end = change - 1.5 * DAY, change + 1.5 * DAY
        expected = times_by_looking(zone, first, end)
        for text in SCHEDULES:
            assert times_by_next(parse_schedule(text, zone), first, end) == expected[text], text


def test_a_clock_set_back_across_midnight_repeats_the_end_of_the_day_before() -> None:
    first, end = at("2009-10-30T00:00Z"), at("2009-11-03T00:00Z")
    expected = times_by_looking(ODD_ZONE, first, end)
    for text in SCHEDULES:
        assert times_by_next(parse_schedule(text, ODD_ZONE), first, end) == expected[text], text


@pytest.mark.parametrize(
    ("text", "zone", "after", "due"),
    [
        # 02:30 does not exist on the day the clock goes forward.
        ("30 2 * * *", "America/New_York", "2026-03-07T08:00Z", "2026-03-09T06:30Z"),
        # 01:30 comes twice on the day it goes back.
        ("30 1 * * *", "America/New_York", "2026-11-01T05:30Z", "2026-11-01T06:30Z"),
        ("30 1 * * *", "America/New_York", "2026-11-01T06:30Z", "2026-11-02T06:30Z"),
        ("0 0 * * *", None, "2026-01-01T00:00:00Z", "2026-01-02T00:00Z"),
        ("0 0 * * *", None, "2025-12-31T23:59:59.999Z", "2026-01-01T00:00Z"),
        ("* * * * *", None, "2026-01-01T12:00:01Z", "2026-01-01T12:01Z"),
        ("TZ=Asia/Tokyo 0 9 * * *", None, "2026-01-01T00:00Z", "2026-01-02T00:00Z"),
        ("CRON_TZ=Asia/Tokyo 0 9 * * *", "UTC", "2026-01-01T00:00Z", "2026-01-02T00:00Z"),
        ("TZ= 0 9 * * *", None, "2026-01-01T00:00Z", "2026-01-01T09:00Z"),
        ("0 9 * * *", "US/Eastern", "2026-01-01T00:00Z", "2026-01-01T14:00Z"),
        # Both days restricted: either matches. A star (or a step of one) in either: both must.
        ("0 0 13 * 5", None, "2026-11-01T00:00Z", "2026-11-06T00:00Z"),
        ("0 0 13 * *", None, "2026-11-01T00:00Z", "2026-11-13T00:00Z"),
        ("0 0 */2 * 5", None, "2026-11-01T12:00Z", "2026-11-03T00:00Z"),
        ("0 0 */1 * 5", None, "2026-11-01T12:00Z", "2026-11-06T00:00Z"),
        ("0 0 ? * fri", None, "2026-11-01T12:00Z", "2026-11-06T00:00Z"),
        ("0 0 1 Feb *", None, "2026-11-01T12:00Z", "2027-02-01T00:00Z"),
        ("10/70 * * * *", None, "2026-11-01T12:00Z", "2026-11-01T12:10Z"),
        (",5,,7, * * * *", None, "2026-11-01T12:05Z", "2026-11-01T12:07Z"),
        ("*-5 * * * *", None, "2026-11-01T12:05Z", "2026-11-01T12:06Z"),
        ("+5 007 * * *", None, "2026-11-01T12:05Z", "2026-11-02T07:05Z"),
        ("\t0  12\u00a0* * * ", None, "2026-11-01T12:05Z", "2026-11-02T12:00Z"),
        (" @daily", "UTC", "2026-11-01T12:05Z", "2026-11-02T00:00Z"),
        ("0 0 29 2 *", None, "2096-03-01T00:00Z", None),
        ("0 0 29 2 *", None, "2099-03-01T00:00Z", "2104-02-29T00:00Z"),
        ("59 23 31 2 *", None, "2026-01-01T00:00Z", None),
        (", * * * *", None, "2026-01-01T00:00Z", None),
        ("@every 1h30m", None, "2026-01-01T00:00:10.7Z", "2026-01-01T01:30:10Z"),
        ("@every 90.9s", None, "2026-01-01T00:00Z", "2026-01-01T00:01:30Z"),
        ("@every 10ms", None, "2026-01-01T00:00Z", "2026-01-01T00:00:01Z"),
        ("@every -5h", None, "2026-01-01T00:00Z", "2026-01-01T00:00:01Z"),
        ("@every 1h", "America/New_York", "2026-03-08T06:30Z", "2026-03-08T07:30Z"),
        ("0 0 * * *", "America/New_York", "0001-01-01T00:00:01Z", "0001-01-03T04:56:02Z"),
        ("0 0 * * *", "America/New_York", "9998-01-01T00:00:01Z", None),
        ("@every 1h", None, "9998-01-01T00:00:01Z", None),
    ],
)
def test_next(text: str, zone: str | None, after: str, due: str | None) -> None:
    found = parse_schedule(text, zone).next(at(after))
    assert found == (at(due) if due else None)


def test_without_a_zone_the_controllers_own_is_used() -> None:
    noon_there = parse_schedule("0 12 * * *", None, local="Asia/Tokyo")
    assert noon_there.next(at("2026-01-01T00:00Z")) == at("2026-01-01T03:00Z")
    assert parse_schedule("TZ=Local 0 12 * * *", local="Asia/Tokyo") == noon_there


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "empty spec string"),
        ("x", "expected exactly 5 fields, found 1: [x]"),
        ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
        (" @daily", "expected exactly 5 fields, found 1: [@daily]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* 24 * * *", "end of range (24) above maximum (23): 24"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * 13 *", "end of range (13) above maximum (12): 13"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("30-10 * * * *", "beginning of range (30) beyond end of range (10): 30-10"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        (
            "a * * * *",
            'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax',
        ),
        (
            "jan * * * *",
            'failed to parse int from jan: strconv.Atoi: parsing "jan": invalid syntax',
        ),
        (
            "-5 * * * *",
            'failed to parse int from : strconv.Atoi: parsing "": invalid syntax',
        ),
        (
            "\u0665 * * * *",
            'failed to parse int from \u0665: strconv.Atoi: parsing "\u0665": invalid syntax',
        ),
        (
            "9223372036854775808 * * * *",
            "failed to parse int from 9223372036854775808: "
            'strconv.Atoi: parsing "9223372036854775808": value out of range',
        ),
        ("* * L * *", 'failed to parse int from L: strconv.Atoi: parsing "L": invalid syntax'),
        (
            "* * * * 1#2",
            'failed to parse int from 1#2: strconv.Atoi: parsing "1#2": invalid syntax',
        ),
        ("@reboot", "unrecognized descriptor: @reboot"),
        ("@Daily", "unrecognized descriptor: @Daily"),
        ("@every", "unrecognized descriptor: @every"),
        (
            "@every soon",
            'failed to parse duration @every soon: time: invalid duration "soon"',
        ),
        ("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"'),
        (
            "@every 5d",
            'failed to parse duration @every 5d: time: unknown unit "d" in duration "5d"',
        ),
        (
            "@every 9999999h",
            'failed to parse duration @every 9999999h: time: invalid duration "9999999h"',
        ),
        ("@every .s", 'failed to parse duration @every .s: time: invalid duration ".s"'),
        (
            "@every 1\u20ac",
            "failed to parse duration @every 1\u20ac: "
            'time: unknown unit "\\xe2\\x82\\xac" in duration "1\\xe2\\x82\\xac"',
        ),
        (
            "TZ=Moon/Base * * * * *",
            "provided bad location Moon/Base: unknown time zone Moon/Base",
        ),
        (
            "TZ=../etc * * * * *",
            "provided bad location ../etc: time: invalid location name",
        ),
        (
            "TZ=UTC",
            "invalid schedule format: runtime error: slice bounds out of range [:-1]",
        ),
        ("TZ=UTC ", "expected exactly 5 fields, found 0: []"),
    ],
)
def test_a_text_that_is_no_schedule_is_refused_in_upstreams_words(text: str, error: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        parse_schedule(text, None)
    assert str(refused.value) == error


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("UTC", True),
        ("Europe/Berlin", True),
        ("US/Pacific", True),
        ("GMT+0", True),
        ("Local", True),
        ("europe/berlin", False),
        ("LOCAL", False),
        ("utc", False),
        ("Europe", False),
        ("Europe/Berlin/", False),
        ("", False),
        ("/Europe/Berlin", False),
        ("../zoneinfo/UTC", False),
    ],
)
def test_a_time_zone_must_be_spelled_as_in_the_database(name: str, valid: bool) -> None:
    assert valid_time_zone(name) is valid


@given(st.text(alphabet="0123456789*/-,? @TZ=abejlnrsuy:.", max_size=24))
def test_any_text_is_either_a_schedule_or_refused(text: str) -> None:
    try:
        schedule = parse_schedule(text)
    except ScheduleError:
        return
    due = schedule.next(FIRST_DAY)
    assert due is None or due > FIRST_DAY
