"""Log lines for people and for programs."""

import json
import logging

from onejob.cli.server_log import JsonLines


def test_each_record_is_one_line_of_json() -> None:
    record = logging.LogRecord(
        "onejob.x", logging.WARNING, "f.py", 1, "job %s\nfailed", ("a",), None
    )
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["logger"]) == ("warning", "onejob.x")
    assert found["message"] == "job a\nfailed"
    assert found["time"].endswith("Z")


def test_a_traceback_is_part_of_its_line() -> None:
    try:
        raise ValueError("bad")
    except ValueError as error:
        about = (type(error), error, error.__traceback__)
    line = JsonLines().format(logging.LogRecord("x", logging.ERROR, "f.py", 1, "m", (), about))
    assert "\n" not in line
    assert "ValueError: bad" in json.loads(line)["exception"]
