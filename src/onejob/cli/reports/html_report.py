"""Reports as self-contained HTML: no scripts, no links, every text escaped. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from typing import Final

from onejob.cli.reports.job_report import Attempt, JobReport
from onejob.diagnosis.durations import short_seconds
from onejob.diagnosis.results import Result
from onejob.planning.counts import counted

#: Rows of the timeline and of the table of results.
_MAX_BARS: Final = 300
_MAX_ROWS: Final = 5000
_SLOWEST: Final = 10
_BAR: Final = 14
_WIDTH: Final = 800

_STYLE: Final = """\
:root { color-scheme: light dark; --good: #1a7f37; --bad: #cf222e; --other: #57606a }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #ff7b72; --other: #9198a1 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884 }
pre { background: #8882; padding: .75rem; overflow: auto }
.good { color: var(--good) } .bad { color: var(--bad) }
svg { width: 100%; height: auto } svg .Succeeded { fill: var(--good) }
svg .Failed { fill: var(--bad) } svg rect { fill: var(--other) }
svg text { font: 10px system-ui, sans-serif; fill: currentColor }
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def html_report(title: str, jobs: Sequence[JobReport], now: datetime) -> str:
    head = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{escape(title)}</h1><p>Written {now.strftime('%Y-%m-%d %H:%M:%S %Z')}</p>",
    ]
    body = [line for job in jobs for line in _job(job, now)]
    if not jobs:
        body = ["<p>No Jobs were created.</p>"]
    return "\n".join([*head, *body, "</main></body></html>", ""])


def _job(job: JobReport, now: datetime) -> Iterator[str]:
    name = escape(job.name)
    mood = "good" if job.succeeded else "bad" if job.finished else "other"
    yield f"<h2>job/{name}</h2>"
    yield f'<p class="{mood}"><strong>{escape(job.why[0] if job.why else "")}</strong></p>'
    if not job.succeeded:
        yield f"<h3>Why</h3><pre>{escape(chr(10).join(job.why[1:]).strip())}</pre>"
    if job.attempts:
        yield "<h3>Timeline</h3>"
        yield _timeline(job.attempts, now)
    yield from _slowest(job.results)
    yield from _failures(job)
    yield from _results(job.results)


def _timeline(attempts: Sequence[Attempt], now: datetime) -> str:
    shown = attempts[:_MAX_BARS]
    start = shown[0].started
    end = max(attempt.ended or now for attempt in shown)
    total = max((end - start).total_seconds(), 0.001)
    height = len(shown) * _BAR + 20
    label = f"{counted(len(shown), 'Pod')} in {short_seconds(total)}"
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">']
    for row, attempt in enumerate(shown):
        begin = (attempt.started - start).total_seconds() / total * _WIDTH
        seconds = ((attempt.ended or now) - attempt.started).total_seconds()
        width = max(seconds / total * _WIDTH, 2)
        text = escape(f"{attempt.pod}: {attempt.phase}, {short_seconds(seconds)}")
        parts.append(
            f'<rect class="{escape(attempt.phase)}" x="{min(begin, _WIDTH - 2):.1f}" '
            f'y="{row * _BAR}" width="{width:.1f}" height="{_BAR - 3}"><title>{text}</title></rect>'
        )
    parts.append(f'<text x="0" y="{height - 6}">0 s</text>')
    end_text = (
        f'<text x="{_WIDTH}" y="{height - 6}" text-anchor="end">{short_seconds(total)}</text>'
    )
    more = len(attempts) - len(shown)
    note = f"<p>{counted(more, 'more Pod')}</p>" if more else ""
    return "\n".join([*parts, f"{end_text}</svg>{note}"])


def _slowest(results: Sequence[Result]) -> Iterator[str]:
    timed = [result for result in results if result.seconds is not None]
    if len(timed) > 1:
        yield "<h3>Slowest</h3>"
        slowest = sorted(timed, key=lambda result: -(result.seconds or 0))[:_SLOWEST]
        yield _table(slowest)


def _failures(job: JobReport) -> Iterator[str]:
    if not job.failures:
        return
    yield "<h3>Failures</h3>"
    for failed in job.failures:
        log = escape("\n".join(failed.log)) or "(no output)"
        yield f"<h4>pod/{escape(failed.pod)}</h4><pre>{log}</pre>"
    if job.more_failures:
        yield f"<p>{counted(job.more_failures, 'more failed Pod')}</p>"


def _results(results: Sequence[Result]) -> Iterator[str]:
    if results:
        yield "<h3>Results</h3>"
        yield _table(results[:_MAX_ROWS])
    if len(results) > _MAX_ROWS:
        yield f"<p>{counted(len(results) - _MAX_ROWS, 'more row')}</p>"


def _table(results: Sequence[Result]) -> str:
    titles = ("Index", "Pod", "State", "Exit code", "Attempts", "Time", "Parameters", "Result")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    rows = "\n".join(f"<tr>{''.join(_cells(result))}</tr>" for result in results)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"


def _cells(result: Result) -> Iterator[str]:
    seconds = result.seconds
    mood = {"Succeeded": "good", "Failed": "bad"}.get(result.state, "other")
    parameters = " ".join(f"{name}={value}" for name, value in result.params.items())
    yield f"<td>{'' if result.index is None else result.index}</td>"
    yield f"<td>{escape(result.pod)}</td>"
    yield f'<td class="{mood}">{escape(result.state)}</td>'
    yield f"<td>{'' if result.exit_code is None else result.exit_code}</td>"
    yield f"<td>{result.attempts}</td>"
    yield f"<td>{'' if seconds is None else short_seconds(seconds)}</td>"
    yield f"<td>{escape(parameters)}</td>"
    yield f"<td>{escape(result.text.strip())}</td>"
