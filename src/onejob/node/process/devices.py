"""Device allocation: assigns numbered devices, such as GPUs, to containers.

The scheduler limits how many Pods run at once by their requests, as for any resource. This module
selects the particular devices of a container, so that no two containers use the same one.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from onejob.objects.pod_spec import Container
from onejob.wire.quantity import parse_quantity

log = logging.getLogger(__name__)

#: Resource -> environment variables that programs read. Others get one derived from their name.
_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "nvidia.com/gpu": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "amd.com/gpu": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}
_MAX_DEVICES: Final = 1024


class NoDevice(Exception):
    """Not enough devices of the requested resource are free."""


class _Held(msgspec.Struct):
    resource: str
    uid: str
    container: str
    slots: tuple[int, ...]


class Devices:
    """Device slots, numbered from 0 for each resource. Assignments are kept on disk, because Pods
    outlive the server."""

    def __init__(self, record: Path, capacity: Mapping[str, int]) -> None:
        self._record = record
        self._capacity = {
            name: amount
            for name, amount in capacity.items()
            # Resources with a domain prefix are counted in whole devices.
            if "/" in name and 0 < amount <= _MAX_DEVICES
        }
        self._held: list[_Held] = []
        #: Containers that are not running at present; their slots may be reassigned.
        self._idle: set[tuple[str, str]] = set()

    def inherit(self, uids: Iterable[str]) -> None:
        """Load the assignments of an earlier run of the server, for the Pods that still exist."""
        left = set(uids)
        try:
            held = msgspec.json.decode(self._record.read_bytes(), type=list[_Held])
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s: %s: devices may be assigned twice", self._record, error)
            return
        self._held = [one for one in held if one.uid in left and one.resource in self._capacity]

    def assign(self, uid: str, container: Container) -> dict[str, str]:
        """Assign slots to a container that is about to start; return its variables. Raises
        NoDevice, OSError."""
        if not self._capacity:
            return {}
        owner = (uid, container.name)
        self._idle.discard(owner)
        changed = False
        for resource, amount in _requested_devices(container, self._capacity).items():
            if self._assigned_slots(resource, *owner) is None:
                self._held.append(_Held(resource, *owner, self._take_slots(resource, amount)))
                changed = True
        if changed:
            self._save()
        return self.variables(uid, container.name)

    def variables(self, uid: str, container: str) -> dict[str, str]:
        """Return the environment variables of a container. Resources that it did not request get an
        empty list, so that it sees none of those devices."""
        found: dict[str, str] = {}
        for resource in self._capacity:
            slots = self._assigned_slots(resource, uid, container) or ()
            for variable in variables_of(resource):
                found[variable] = ",".join(_device(variable, slot) for slot in slots)
        return found

    def ended(self, uid: str, container: str) -> None:
        """Mark a container's slots as reusable; it gets the same slots at a restart, unless others
        need them first."""
        if self._capacity:
            self._idle.add((uid, container))

    def release(self, uid: str) -> None:
        """Free the slots of a Pod that has ended."""
        if any(one.uid == uid for one in self._held):
            self._held = [one for one in self._held if one.uid != uid]
            self._save()
        self._idle = {owner for owner in self._idle if owner[0] != uid}

    def _assigned_slots(self, resource: str, uid: str, container: str) -> tuple[int, ...] | None:
        """Return the devices that a container holds; None if it holds none."""
        for one in self._held:
            if (one.resource, one.uid, one.container) == (resource, uid, container):
                return one.slots
        return None

    def _take_slots(self, resource: str, amount: int) -> tuple[int, ...]:
        """Return free slots, taking those of ended containers if necessary. Raises NoDevice."""
        free = self._free_slots(resource)
        for one in list(self._held):
            if len(free) >= amount:
                break
            if one.resource == resource and (one.uid, one.container) in self._idle:
                self._held.remove(one)
                free = self._free_slots(resource)
        if len(free) < amount:
            raise NoDevice(f"{resource}: {amount} requested, {len(free)} free")
        return tuple(free[:amount])

    def _free_slots(self, resource: str) -> list[int]:
        taken = {slot for one in self._held if one.resource == resource for slot in one.slots}
        return [slot for slot in range(self._capacity[resource]) if slot not in taken]

    def _save(self) -> None:
        """Replace the record of held devices."""
        unfinished = self._record.with_suffix(".new")
        unfinished.write_bytes(msgspec.json.encode(self._held))
        os.replace(unfinished, self._record)


def variables_of(resource: str) -> tuple[str, ...]:
    own = "ONEJOB_" + re.sub("[^A-Z0-9]+", "_", resource.upper())
    return _VARIABLES.get(resource, (own,))


def _device(variable: str, slot: int) -> str:
    """Return the device of a slot: if the server itself is limited to some devices, one of
    these."""
    own = [device for device in os.environ.get(variable, "").split(",") if device]
    return own[slot] if slot < len(own) else str(slot)


def _requested_devices(container: Container, known: Mapping[str, int]) -> dict[str, int]:
    """Return the number of requested devices by resource."""
    amounts = {**container.resources.requests, **container.resources.limits}
    wanted = {name: parse_quantity(amounts[name]).whole for name in known if name in amounts}
    return {name: amount for name, amount in wanted.items() if amount > 0}
