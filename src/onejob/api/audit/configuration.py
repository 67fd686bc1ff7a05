"""Audit log configuration."""

from dataclasses import dataclass, field

from onejob.api.audit.log_file import Rotation


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Settings of the audit log."""

    policy_file: str
    #: Path of the log file; "-" is stdout.
    log_path: str
    rotation: Rotation = field(default_factory=Rotation)
