"""Validation of annotations about outputs in a Pod or a Pod template."""

from collections.abc import Mapping

from onejob.planning.names import INPUTS_ANNOTATION, OUTPUT_PATH_ANNOTATION, OUTPUTS_ANNOTATION
from onejob.planning.pod.outputs import InvalidInputs, output_path, parse_inputs
from onejob.wire.field_errors import FieldError, invalid, not_supported


def validate_outputs(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    """Return the errors of annotations at `path`."""
    errors = []
    if annotations.get(OUTPUTS_ANNOTATION, "true") not in ("true", "false"):
        place = f"{path}[{OUTPUTS_ANNOTATION}]"
        errors.append(not_supported(place, annotations[OUTPUTS_ANNOTATION], ["true", "false"]))
    for name, check in ((OUTPUT_PATH_ANNOTATION, output_path), (INPUTS_ANNOTATION, parse_inputs)):
        try:
            check(annotations)
        except InvalidInputs as error:
            errors.append(invalid(f"{path}[{name}]", annotations[name], str(error)))
    return errors
