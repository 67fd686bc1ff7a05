"""Settings for all tests, independent of how and on which machine they are run."""

import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.async_tests", "tests.cpu_durations"]

# Parents such as nohup or a background shell ignore SIGINT; restore the default handlers.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# Durations depend on the machine more than on the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
