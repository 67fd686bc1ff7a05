"""Container environment: variable sources and `$(VAR)` expansion."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from onejob.node.options import NodeOptions
from onejob.node.runtime import NodeContext
from onejob.node.setup.service_variables import api_server_variables, service_variables
from onejob.node.supervisor.paths import part_inside, read_file_beneath
from onejob.objects.meta import Key
from onejob.objects.pod_spec import (
    Container,
    EnvSource,
    FileKeySelector,
    KeySelector,
    NodePod,
    ResourceFieldSelector,
)
from onejob.wire.quantity import InvalidQuantity, parse_quantity

CONFIG_MAPS = "configmaps"
SECRETS = "secrets"
#: Not a stored resource: a service account token, issued when it is fetched.
TOKENS = "serviceaccounts/token"


class ConfigProblem(Exception):
    """A container cannot be created as specified at present; `reason` is the waiting reason in its
    status."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.message, self.reason = message, reason


class Settings(Protocol):
    """Fetched ConfigMaps and Secrets; None for one that does not exist."""

    def values(self, key: Key) -> Mapping[str, bytes] | None:
        """Return the data of a ConfigMap or Secret; None if it does not exist."""


def server_variables(names: Iterable[str]) -> dict[str, str]:
    """Return the variables with these names that this process has, with its values."""
    return {name: os.environ[name] for name in names if name in os.environ}


def passed_variables(options: NodeOptions) -> dict[str, str]:
    """Return the variables that Pods get from `--pass-env`, of this run or of the one resumed."""
    return {**options.passed_env, **server_variables(options.pass_env)}


def settings_used(pod: NodePod, container: Container) -> Iterator[Key]:
    """Yield the keys of the ConfigMaps and Secrets that `environment` needs."""
    namespace = pod.metadata.namespace
    for source in container.env_from:
        if source.config_map_ref is not None:
            yield Key(CONFIG_MAPS, namespace, source.config_map_ref.name)
        if source.secret_ref is not None:
            yield Key(SECRETS, namespace, source.secret_ref.name)
    for variable in container.env:
        if (origin := variable.value_from) is not None:
            if origin.config_map_key_ref is not None:
                yield Key(CONFIG_MAPS, namespace, origin.config_map_key_ref.name)
            if origin.secret_key_ref is not None:
                yield Key(SECRETS, namespace, origin.secret_key_ref.name)


def environment(
    pod: NodePod,
    container: Container,
    base: Mapping[str, str],
    settings: Settings,
    node: NodeContext,
    folder: Path | str,
) -> dict[str, str]:
    """Return the variables of a container from `base`, HOSTNAME, Services, envFrom and env; later
    ones win. `folder` is the Pod's own. Raises ConfigProblem."""
    result = dict(base)
    room = _MAX_TOTAL_LENGTH

    def put(name: str, value: str) -> None:
        nonlocal room
        result[name] = value
        room -= len(value)
        if room < 0:
            raise ConfigProblem(
                f"environment variables need more than {_MAX_TOTAL_LENGTH} characters"
            )

    result["HOSTNAME"] = pod.hostname
    namespace = pod.metadata.namespace
    if pod.spec.enable_service_links:
        result |= service_variables(node.services(namespace), node.ip)
    if pod.spec.volumes and pod.tokens:
        result |= _api_server_variables(node.api_server())
    for source in container.env_from:
        if source.config_map_ref is not None:
            reference, key = source.config_map_ref, CONFIG_MAPS
        elif source.secret_ref is not None:
            reference, key = source.secret_ref, SECRETS
        else:
            continue
        values = settings.values(Key(key, namespace, reference.name))
        if values is None:
            if reference.optional:
                continue
            raise ConfigProblem(f'{key[:-1]} "{reference.name}" not found')
        for name, value in values.items():
            put(source.prefix + name, _text(value))
    for variable in container.env:
        if variable.value_from is None:
            found: str | None = expand(variable.value, result)
        else:
            found = _from_source(pod, container, variable.value_from, settings, node, folder)
        if found is not None:
            put(variable.name, found)
    return result


def _api_server_variables(url: str) -> Mapping[str, str]:
    """Return the variables that locate the API server. Raises ConfigProblem if it is not listening
    yet."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ConfigProblem("the API server is not listening yet")
    return api_server_variables(parts.hostname, parts.port or 443)


#: Linux's limits for one argument or variable, and for all of them; counted in characters here.
_MAX_VARIABLE_LENGTH = 128 * 1024
_MAX_TOTAL_LENGTH = 6 * 1024 * 1024

#: Size limit of a file of variables, in bytes.
_LONGEST_FILE = 64 * 1024

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value if there is one, and `$$` by a dollar sign.

    Raises ConfigProblem beyond the size that a process can receive: thirty variables, each
    containing the previous one twice, would fill any memory.
    """
    if "$" not in text:
        return text
    length = len(text)

    def replace(match: re.Match[str]) -> str:
        nonlocal length
        name = match[1]
        value = "$" if name is None else values.get(name, match[0])
        length += len(value)
        if length > _MAX_VARIABLE_LENGTH + len(text):
            raise ConfigProblem(
                f"expanded variable references need more than {_MAX_VARIABLE_LENGTH} characters"
            )
        return value

    return _REFERENCE.sub(replace, text)


def missing_values(text: str, values: Mapping[str, str]) -> list[str]:
    """Return the names referenced by `$(NAME)` that have no value or an empty one, sorted."""
    names = {match[1] for match in _REFERENCE.finditer(text) if match[1] is not None}
    return sorted(name for name in names if not values.get(name))


def expand_all(words: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """Expand a command line. Raises ConfigProblem."""
    expanded: list[str] = []
    room = _MAX_TOTAL_LENGTH
    for word in words:
        expanded.append(expand(word, values))
        room -= len(expanded[-1])
        if room < 0:
            raise ConfigProblem(f"the command needs more than {_MAX_TOTAL_LENGTH} characters")
    return expanded


def _from_source(
    pod: NodePod,
    container: Container,
    source: EnvSource,
    settings: Settings,
    node: NodeContext,
    folder: Path | str,
) -> str | None:
    """Return the value of a variable from its source; None if it is optional and absent. Raises
    ConfigProblem."""
    if source.field_ref is not None:
        return field_value(pod, source.field_ref.field_path, node)
    if source.resource_field_ref is not None:
        return resource_value(pod, container, source.resource_field_ref, node)
    if source.config_map_key_ref is not None:
        return _key_value(pod, CONFIG_MAPS, source.config_map_key_ref, settings)
    if source.secret_key_ref is not None:
        return _key_value(pod, SECRETS, source.secret_key_ref, settings)
    if source.file_key_ref is not None:
        return _value_in_file(pod, source.file_key_ref, folder)
    raise ConfigProblem("an environment variable has an unsupported source")


def _value_in_file(pod: NodePod, selector: FileKeySelector, folder: Path | str) -> str | None:
    """Return the value of a key in an env file of a volume; None if it is optional and absent.
    Raises ConfigProblem."""
    # Imported by the few Pods that use it.
    from onejob.planning.pod.env_file import InvalidEnvFile, find_variable

    name = selector.volume_name
    if not any(each.name == name and each.empty_dir is not None for each in pod.spec.volumes):
        raise ConfigProblem(f'cannot find the volume "{name}" referenced by FileKeyRef')
    volume = os.path.join(folder, "volumes", name)
    try:
        part = part_inside(volume, selector.path)
        content = read_file_beneath(volume, part, _LONGEST_FILE + 1)
        if len(content) > _LONGEST_FILE:
            raise InvalidEnvFile(f"it is larger than {_LONGEST_FILE >> 10} KiB")
        value = find_variable(_text(content), selector.key)
    except (OSError, InvalidEnvFile) as error:
        raise ConfigProblem(
            f'couldn\'t parse env file "{selector.path}" of volume "{name}": {error}'
        ) from error
    if value:
        return value
    if selector.optional:
        return None
    raise ConfigProblem(
        f'environment variable key "{selector.key}" not found in file "{selector.path}"'
    )


def _key_value(
    pod: NodePod, resource: str, selector: KeySelector, settings: Settings
) -> str | None:
    """Return the value of a key of a ConfigMap or Secret; None if it is optional and absent. Raises
    ConfigProblem."""
    namespace = pod.metadata.namespace
    values = settings.values(Key(resource, namespace, selector.name))
    kind = "ConfigMap" if resource == CONFIG_MAPS else "Secret"
    if values is None:
        if selector.optional:
            return None
        raise ConfigProblem(f'{resource[:-1]} "{selector.name}" not found')
    if selector.key not in values:
        if selector.optional:
            return None
        raise ConfigProblem(
            f"couldn't find key {selector.key} in {kind} {namespace}/{selector.name}"
        )
    return _text(values[selector.key])


_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")


def field_value(pod: NodePod, path: str, node: NodeContext) -> str:
    """Return a field of the Pod for the downward API. Raises ConfigProblem."""
    meta, spec = pod.metadata, pod.spec
    if match := _SUBSCRIPT.fullmatch(path):
        values = meta.labels if match[1] == "labels" else meta.annotations
        return values.get(match[2], "")
    match path:
        case "metadata.name":
            return meta.name
        case "metadata.namespace":
            return meta.namespace
        case "metadata.uid":
            return meta.uid
        case "metadata.labels":
            return _lines(meta.labels)
        case "metadata.annotations":
            return _lines(meta.annotations)
        case "spec.nodeName":
            return node.name
        case "spec.serviceAccountName":
            return spec.service_account_name
        case "status.podIP" | "status.podIPs" | "status.hostIP" | "status.hostIPs":
            return node.ip
        case _:
            raise ConfigProblem(f"unsupported fieldPath: {path}")


def resource_value(
    pod: NodePod, container: Container, selector: ResourceFieldSelector, node: NodeContext
) -> str:
    """Return a limit or request in units of the divisor, rounded up, as upstream does. Raises
    ConfigProblem."""
    target = container
    if selector.container_name:
        named = pod.container(selector.container_name)
        if named is None:
            raise ConfigProblem(f"container {selector.container_name} not found")
        target = named
    kind, _, name = selector.resource.partition(".")
    if kind not in ("limits", "requests") or not name:
        raise ConfigProblem(f"unsupported container resource: {selector.resource}")
    amounts = target.resources.limits if kind == "limits" else target.resources.requests
    try:
        divisor = parse_quantity(selector.divisor).nanos or 10**9
        if name in amounts:
            nanos = parse_quantity(amounts[name]).nanos
        elif kind == "limits":
            unit = 10**6 if name == "cpu" else 10**9
            nanos = node.allocatable.get(name, 0) * unit
        else:
            nanos = 0
    except InvalidQuantity as error:
        raise ConfigProblem(f"{selector.resource}: {error}") from error
    return str(-(-nanos // divisor))


def _lines(values: Mapping[str, str]) -> str:
    """Return labels or annotations in the format of the downward API."""
    quoted = (
        f"{name}="
        + '"'
        + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        + '"'
        for name, value in sorted(values.items())
    )
    return "\n".join(quoted)


def _text(value: bytes) -> str:
    """Return the value as text; invalid UTF-8 is replaced."""
    return value.decode("utf-8", "replace")
