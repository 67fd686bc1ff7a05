"""Parser: recursive descent, with precedence climbing (Pratt) for binary operators.

Nesting is bounded, so that no expression exhausts Python's stack, neither here nor in later passes
over the tree.
"""

from onejob.cel.ast import (
    And,
    Call,
    Comprehension,
    Conditional,
    FieldEntry,
    Has,
    Identifier,
    Index,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    ObjectLiteral,
    OptionalMap,
    Or,
    Select,
    children,
    qualified_name,
)
from onejob.cel.errors import CompileError, issue_at
from onejob.cel.lexer import Token, tokenize
from onejob.cel.schema import RESERVED

#: Maximum nesting of brackets, calls, unary operators and conditionals.
DEEPEST_NESTING = 48
#: Maximum depth of the tree: each link of a chain like `a + b + c` or `a.b.c` is a level, too. A
#: chain of `&&` or of `||` is one level, whatever its length.
DEEPEST_TREE = 100

#: Keywords of other languages; allowed as field names, not as variable names.
_RESERVED = RESERVED - {"true", "false", "null", "in"}
_PRECEDENCE = {
    "==": 1, "!=": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "in": 1,
    "+": 2, "-": 2,
    "*": 3, "/": 3, "%": 3,
}  # fmt: skip
#: Macros over a range, by name and number of arguments: (number of variables, has a condition).
_RANGE_MACROS = {
    ("all", 2): (1, False),
    ("exists", 2): (1, False),
    ("exists_one", 2): (1, False),
    ("existsOne", 2): (1, False),
    ("map", 2): (1, False),
    ("map", 3): (1, True),
    ("filter", 2): (1, False),
    ("sortBy", 2): (1, False),
    ("all", 3): (2, False),
    ("exists", 3): (2, False),
    ("existsOne", 3): (2, False),
    ("exists_one", 3): (2, False),
    ("transformList", 3): (2, False),
    ("transformList", 4): (2, True),
    ("transformMap", 3): (2, False),
    ("transformMap", 4): (2, True),
    ("transformMapEntry", 3): (2, False),
    ("transformMapEntry", 4): (2, True),
}


def parse(source: str) -> Node:
    return _Parser(source).whole()


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokenize(source)
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._expression()
        if self._token.kind != "end":
            raise self._unexpected()
        self._check_depth(node)
        return node

    def _check_depth(self, root: Node) -> None:
        level = [root]
        for _ in range(DEEPEST_TREE):
            level = [child for node in level for child in children(node)]
            if not level:
                return
        message = f"expression recursion limit exceeded: {DEEPEST_TREE}"
        raise self._fail(level[0].position, message)

    # Tokens.

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _advance(self) -> Token:
        token = self._token
        self._at += 1
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._advance() if self._token.kind == kind else None

    def _expect(self, kind: str) -> Token:
        if self._token.kind != kind:
            raise self._unexpected(f" expecting '{kind}'")
        return self._advance()

    def _fail(self, position: int, message: str) -> CompileError:
        return CompileError([issue_at(self._source, position, message)])

    def _unexpected(self, wanted: str = "") -> CompileError:
        token = self._token
        message = f"Syntax error: mismatched input '{token.text}'{wanted}"
        return self._fail(token.position, message)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST_NESTING:
            message = f"expression recursion limit exceeded: {DEEPEST_NESTING}"
            raise self._fail(self._token.position, message)

    # Operators.

    def _expression(self) -> Node:
        self._enter()
        node = self._or()
        question = self._accept("?")
        if question:
            then = self._or()
            self._expect(":")
            node = Conditional(question.position, node, then, self._expression())
        self._depth -= 1
        return node

    def _or(self) -> Node:
        terms, operators = [self._and()], []
        while self._token.kind == "||":
            operators.append(self._advance().position)
            terms.append(self._and())
        return Or(operators[0], terms, operators) if operators else terms[0]

    def _and(self) -> Node:
        terms, operators = [self._binary(1)], []
        while self._token.kind == "&&":
            operators.append(self._advance().position)
            terms.append(self._binary(1))
        return And(operators[0], terms, operators) if operators else terms[0]

    def _binary(self, lowest: int) -> Node:
        left = self._unary()
        while True:
            token = self._token
            operator = token.text if token.kind != "literal" else ""
            precedence = _PRECEDENCE.get(operator, 0)
            if precedence < lowest:
                return left
            self._advance()
            right = self._binary(precedence + 1)
            name = "@in" if operator == "in" else f"_{operator}_"
            left = Call(token.position, name, None, [left, right])

    def _unary(self) -> Node:
        token = self._token
        if token.kind not in ("!", "-"):
            return self._member()
        count = 0
        while self._token.kind == token.kind:
            self._advance()
            count += 1
        number = self._token.value if self._token.kind == "literal" else None
        if token.kind == "-" and type(number) in (int, float):
            # Parse a literal with its sign, so that the least int can be written.
            literal = self._advance()
            operand = self._postfix(Literal(literal.position, -literal.value))
            count -= 1
        else:
            self._enter()
            operand = self._unary()
            self._depth -= 1
        # An even number of them cancels out, as in cel-go.
        return (
            operand if count % 2 == 0 else Call(token.position, f"{token.kind}_", None, [operand])
        )

    # Members.

    def _member(self) -> Node:
        return self._postfix(self._primary())

    def _postfix(self, node: Node) -> Node:
        while self._token.kind in (".", "[", "{"):
            if self._token.kind == "{":
                type_name = qualified_name(node)
                if type_name is None:
                    return node
                node = self._object(type_name)
                continue
            token = self._advance()
            optional = self._accept("?") is not None
            if token.kind == "[":
                key = self._expression()
                self._expect("]")
                node = Index(token.position, node, key, optional)
                continue
            name = self._field_name()
            if self._token.kind == "(" and not optional:
                node = self._method(node, name)
            else:
                node = Select(token.position, node, name, optional)
        return node

    def _field_name(self) -> str:
        token = self._token
        if token.kind == "escaped":
            return self._advance().text
        if token.kind == "end" and self._tokens[self._at - 1].kind == ".":
            raise self._fail(token.position, "Syntax error: no viable alternative at input '.'")
        if token.kind != "name" or token.text in ("in", "true", "false", "null"):
            raise self._unexpected(" expecting IDENTIFIER")
        return self._advance().text

    def _arguments(self) -> list[Node]:
        self._expect("(")
        arguments: list[Node] = []
        if not self._accept(")"):
            arguments.append(self._expression())
            while self._accept(","):
                arguments.append(self._expression())
            self._expect(")")
        return arguments

    def _method(self, target: Node, name: str) -> Node:
        position = self._token.position
        arguments = self._arguments()
        macro = _RANGE_MACROS.get((name, len(arguments)))
        if macro:
            return self._comprehension(position, target, name, arguments, *macro)
        if name in ("optMap", "optFlatMap") and len(arguments) == 2:
            variable = self._variable(arguments[0])
            return OptionalMap(position, target, variable, arguments[1], name == "optFlatMap")
        qualified = _namespaced_function(target, name)
        if qualified:
            return Call(position, qualified, None, arguments)
        return Call(position, name, target, arguments)

    def _comprehension(
        self,
        position: int,
        target: Node,
        name: str,
        arguments: list[Node],
        variables: int,
        conditional: bool,
    ) -> Node:
        names = [self._variable(argument) for argument in arguments[:variables]]
        if variables == 2 and names[0] == names[1]:
            message = f"duplicate variable name: {names[1]}"
            raise self._fail(arguments[1].position, message)
        condition = arguments[variables] if conditional else None
        body = arguments[-1]
        kind = "existsOne" if name == "exists_one" else name
        if kind == "filter":
            condition, kind = body, "filter"
        second = names[1] if variables == 2 else None
        return Comprehension(position, kind, target, names[0], second, condition, body)

    def _variable(self, node: Node) -> str:
        if isinstance(node, Identifier) and node.name not in ("__result__", "@result"):
            return node.name
        raise self._fail(node.position, "argument must be a simple name")

    # Primary expressions.

    def _primary(self) -> Node:
        token = self._token
        if token.kind == "literal":
            self._advance()
            if type(token.value) is int and token.value == 1 << 63:
                raise self._fail(token.position, "invalid int literal")
            return Literal(token.position, token.value)
        if token.kind == "(":
            self._advance()
            node = self._expression()
            self._expect(")")
            return node
        if token.kind == "[":
            return self._list()
        if token.kind == "{":
            return self._map()
        if token.kind == ".":
            # A leading dot resolves the name at the root, where all names are declared.
            self._advance()
            token = self._token
        if token.kind == "name":
            return self._name(self._advance())
        raise self._unexpected()

    def _name(self, token: Token) -> Node:
        constants = {"true": True, "false": False, "null": None}
        if token.text in constants:
            return Literal(token.position, constants[token.text])
        if token.text in _RESERVED or token.text == "in":
            raise self._fail(token.position, f"reserved identifier: {token.text}")
        if self._token.kind != "(":
            return Identifier(token.position, token.text)
        position = self._token.position
        arguments = self._arguments()
        if token.text == "has" and len(arguments) == 1:
            operand = arguments[0]
            if not isinstance(operand, Select):
                raise self._fail(operand.position, "invalid argument to has() macro")
            return Has(position, operand.operand, operand.field_name, operand.optional)
        return Call(position, token.text, None, arguments)

    def _list(self) -> Node:
        position = self._advance().position
        elements: list[tuple[Node, bool]] = []
        while not self._accept("]"):
            optional = self._accept("?") is not None
            elements.append((self._expression(), optional))
            if not self._accept(","):
                self._expect("]")
                break
        return ListLiteral(position, elements)

    def _object(self, type_name: str) -> Node:
        position = self._advance().position
        entries: list[FieldEntry] = []
        while not self._accept("}"):
            optional = self._accept("?") is not None
            name = self._field_name()
            colon = self._expect(":").position
            entries.append(FieldEntry(colon, name, self._expression(), optional))
            if not self._accept(","):
                self._expect("}")
                break
        return ObjectLiteral(position, type_name, entries)

    def _map(self) -> Node:
        position = self._advance().position
        entries: list[tuple[Node, Node, bool]] = []
        while not self._accept("}"):
            optional = self._accept("?") is not None
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), optional))
            if not self._accept(","):
                self._expect("}")
                break
        return MapLiteral(position, entries)


#: Namespaces of functions with dotted names; not variables with methods.
NAMESPACES = frozenset(("optional", "ip", "format", "jsonpatch", "sets", "lists", "strings"))


def _namespaced_function(target: Node, name: str) -> str:
    if isinstance(target, Identifier) and target.name in NAMESPACES:
        return f"{target.name}.{name}"
    return ""
