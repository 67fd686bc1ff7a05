"""Common Expression Language (CEL), as used by Kubernetes for x-kubernetes-validations.

    variables = rule_variables(declare(schema))
    program = compile_rule("self.replicas <= self.maxReplicas", variables)
    program.evaluate({"self": value})

Values are plain decoded JSON. The package is self-contained: it imports no other part of onejob.

Guarantees: cost is counted in upstream's units, and an evaluation ends at PER_CALL_LIMIT. No
expression exhausts Python's stack.

Errors: compiling raises CompileError; WrongResult if only the result type is wrong. Evaluating
raises EvaluationError or CostLimitExceeded.
"""

from onejob.cel.costs import ESTIMATE_LIMIT, PER_CALL_LIMIT, PER_OBJECT_LIMIT
from onejob.cel.errors import (
    CompileError,
    CostLimitExceeded,
    EvaluationError,
    Issue,
    WrongResult,
)
from onejob.cel.program import (
    Budget,
    Program,
    compile_expression,
    compile_message,
    compile_rule,
    rule_variables,
)
from onejob.cel.schema import declare, escape, max_cardinality
from onejob.cel.types import DYN, Type

__all__ = [
    "DYN",
    "ESTIMATE_LIMIT",
    "PER_CALL_LIMIT",
    "PER_OBJECT_LIMIT",
    "Budget",
    "CompileError",
    "CostLimitExceeded",
    "EvaluationError",
    "Issue",
    "Program",
    "Type",
    "WrongResult",
    "compile_expression",
    "compile_message",
    "compile_rule",
    "declare",
    "escape",
    "max_cardinality",
    "rule_variables",
]
