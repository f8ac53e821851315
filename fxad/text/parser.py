"""A program as text and back: `parse(to_text(j)) is j`, for every program.

`fxad.core.printing` documents the format. The parser accepts untrusted text: it evaluates nothing, takes time linear in
the text, checks types and parameters of every equation, and raises a `ParseError` with line and column for malformed
text. It accepts more than the printer writes: values and functions may have any names, and blank lines and `# comments`
may stand between lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, NoReturn, TypeAlias, TypeVar, final

from fxad import dtypes
from fxad.core import printing, scalar_text as scalars
from fxad.core.sizes.text import Reader, read_size
from fxad.errors import ArgumentError, FxadError, ParameterError, ParseError, described, shown
from fxad.ir import (
    Atom,
    Aval,
    Eqn,
    Jaxpr,
    Lit,
    Param,
    Primitive,
    Record,
    Source,
    Var,
    distinct_jaxprs,
    source_text,
)
from fxad.primitives import ALL
from fxad.text.lexer import token_kind, token_offset, tokens
from fxad.text.parameters import Field, Records, fields_of

T = TypeVar("T")

PRIMITIVES: Final[Mapping[str, type[Primitive]]] = MappingProxyType({p.name: p for p in ALL})
Vocabulary: TypeAlias = Mapping[str, type[Primitive]]  # primitives by their names in texts
# Classes of primitives from outside fxad, or a mapping from their names to them.
OwnPrimitives: TypeAlias = Iterable[type[Primitive]] | Vocabulary

# Groups: the dtype; sizes that are numbers; or sizes of which some are named.
_TYPE: Final = re.compile(r"([a-z0-9]+)\[(?:((?:[0-9]+(?:,[0-9]+)*)?)|(.*[A-Za-z].*))\]")
_INT: Final = re.compile(r"-?(?:0x[0-9a-f]+|[0-9]{1,20})")
_WORDS: Final = MappingProxyType({"none": None, "true": True, "false": False})
_NESTING: Final = 100  # greatest depth of tuples in a parameter
_SHOWN: Final = 120  # greatest number of characters of the user's text in a message
_OWN: Final = "if {name} is a primitive from outside fxad, give the class that has this name in primitives=[...]"


def to_text(jaxpr: Jaxpr, *, source: bool = False) -> str:
    """Return the program as text, exact; `source` adds the user's lines as comments.

    Law: `parse(to_text(j)) is j`.
    """
    return printing.program(distinct_jaxprs(jaxpr), (lambda eqn: source_text(eqn.source)) if source else None)


def parse(text: str, primitives: OwnPrimitives = (), *, sources: Iterable[Source] = ()) -> Jaxpr:
    """Return the program of a text. `primitives` are classes of primitives from outside fxad that it may use, too.

    `sources` are the user's lines of the equations, in the order of the text.

    Law:    `parse(to_text(j)) is j`; the result is well typed.
    Raises: ParseError, with line and column, and for the text nothing else; ParameterError for `primitives`.
    Cost:   linear in the text.
    """
    _check_text(text)
    return _Parser(text, vocabulary("parse", primitives), iter(sources)).file()


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise ArgumentError(f"parse: {described(text)} is not a text: {shown(text)}", remedy="give the text as a str")


def vocabulary(what: str, own: OwnPrimitives) -> Vocabulary:
    """Return the primitives of fxad and those given, by name. Raises: ParameterError for what is no class of a
    primitive, and for a class with the name of another."""
    by_name = dict(PRIMITIVES)
    classes: object = own
    if not isinstance(classes, Iterable) or isinstance(classes, str | bytes) or getattr(classes, "ndim", 1) == 0:
        raise ParameterError(
            f"{what}: primitives is {described(own)}: {shown(own)}", remedy="give classes: primitives=[MyPrimitive]"
        )
    for name, kind in own.items() if isinstance(own, Mapping) else [(getattr(k, "name", None), k) for k in own]:
        value: object = kind
        if not (isinstance(name, str) and isinstance(value, type) and issubclass(value, Primitive)):
            raise ParameterError(
                f"{what}: primitives has {shown(value)}, not the class of a primitive",
                remedy="give classes: primitives=[MyPrimitive]",
            )
        if by_name.setdefault(name, kind) is not kind:
            raise ParameterError(
                f"{what}: two primitives have the name {name!r}: {_class(by_name[name])} and {_class(kind)}",
                remedy="rename one of them: a text names primitives",
            )
    return by_name


def _class(kind: type[Primitive]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


@final
class _Operation:
    """An operation with its parameters, which many equations may share, and its result types by operand types."""

    __slots__ = ("prim", "result_types")

    def __init__(self, prim: Primitive) -> None:
        self.prim = prim
        self.result_types: dict[tuple[Aval, ...], tuple[Aval, ...]] = {}


@final
class _Parser:
    """The state of parsing one text: the tokens, the current index, and caches of parsed values that may repeat."""

    def __init__(self, text: str, primitives: Vocabulary, sources: Iterator[Source]) -> None:
        self.text = text
        self.primitives = primitives
        self.sources = sources
        self.tokens = tokens(text)
        self.at = 0
        self.functions: dict[str, Jaxpr] = {}
        self.types: dict[str, Aval] = {}
        self.literals: dict[tuple[str, Aval], Lit] = {}
        self.operations: dict[tuple[str, ...], _Operation] = {}  # by their tokens

    # ------------------------------------------------------------------------------------------------ tokens

    def fail(self, problem: str, at: int | None = None, *, remedy: str = "") -> NoReturn:
        """Raise the ParseError for the token `at` (default: the current one)."""
        start = token_offset(self.text, self.at if at is None else at)
        begin, end = self.text.rfind("\n", 0, start) + 1, self.text.find("\n", start)
        line = self.text[begin : None if end < 0 else end].strip()
        raise ParseError(
            f"parse: line {self.text.count(chr(10), 0, start) + 1}, column {start - begin + 1}: {problem}",
            equation=_short(line),
            remedy=remedy,
        )

    def expected(self, what: str) -> NoReturn:
        """Raise the ParseError that says what was expected in place of the current token."""
        token = self.tokens[self.at]
        got = {"": "the end of the text", "\n": "the end of the line"}.get(token) or repr(_short(token))
        self.fail(f"expected {what}, got {got}")

    def take(self, token: str) -> None:
        """Step over `token`."""
        if self.tokens[self.at] != token:
            self.expected("the end of the line" if token == "\n" else repr(token))
        self.at += 1

    def accept(self, token: str) -> bool:
        """Step over `token` if it is the current one. Return True if it was."""
        accepted = self.tokens[self.at] == token
        self.at += accepted
        return accepted

    def take_kind(self, wanted: str, what: str) -> str:
        """Step over a token of a kind, and return it."""
        token = self.tokens[self.at]
        if token_kind(token) != wanted:
            self.expected(what)
        self.at += 1
        return token

    def comma_separated(self, item: Callable[[], T], close: str) -> list[T]:
        """Parse `item, item, ...`, and step over `close` after it."""
        out: list[T] = []
        while not self.accept(close):
            if out and not self.accept(","):
                self.expected("',' or " + ("the end of the line" if close == "\n" else repr(close)))
            out.append(item())
        return out

    def skip_empty_lines(self) -> None:
        """Step over empty lines."""
        while self.tokens[self.at] == "\n":
            self.at += 1

    # --------------------------------------------------------------------------------------------- functions

    def file(self) -> Jaxpr:
        """Return bodies, then the program."""
        self.skip_empty_lines()
        while self.accept("fn"):
            label = self.tokens[self.at]
            if label in self.functions:
                self.fail(f"{_short(label)} is defined twice")
            self.functions[label] = self.function()
            self.skip_empty_lines()
        self.take("main")
        main = self.function()
        self.skip_empty_lines()
        if self.tokens[self.at]:
            self.expected("the end of the text")
        return main

    def function(self) -> Jaxpr:
        """Return a function from its label to its closing brace."""
        name = self.name()
        self.take("(")
        bindings = self.comma_separated(self.binding, ")")
        env: dict[str, Var] = {}
        ins = tuple([self.bind(env, b, ~k) for k, b in enumerate(bindings)])  # operands have the indices -1, -2, ...
        self.take("->")
        self.take("(")
        signature = self.comma_separated(self.aval, ")")
        self.take("{")
        self.take("\n")
        self.skip_empty_lines()
        eqns: list[Eqn] = []
        n = 0
        while not self.accept("return"):
            eqns.append(self.equation(env, n))
            n += len(eqns[-1].outs)
            self.skip_empty_lines()
        at = self.at
        outs = tuple(self.atoms(env))
        self.skip_empty_lines()
        self.take("}")
        if [a.aval for a in outs] != signature:
            returned, declared = (", ".join(map(str, avals)) for avals in ([a.aval for a in outs], signature))
            self.fail(f"returns ({returned}), the signature says ({declared})", at)
        return Jaxpr(ins, tuple(eqns), outs, name)

    def name(self) -> str:
        """Return the name of a function, from its label: `@f`, `@f#1`, `@"<lambda>"`."""
        label = self.take_kind("label", "a function as in '@f'")
        if label[1] != '"':
            return label[1:].split("#")[0]
        return self.quoted(label[1 : label.rindex('"') + 1])

    def binding(self) -> tuple[int, str, Aval]:
        """Parse `%0: f32[3]`. Return the index of its token, the name and the type."""
        at = self.at
        name = self.take_kind("variable", "a value as in '%0'")
        self.take(":")
        return at, name, self.aval()

    def bind(self, env: dict[str, Var], binding: tuple[int, str, Aval], index: int) -> Var:
        """Return the variable with an index, under the name of a binding in `env`."""
        at, name, aval = binding
        if name in env:
            self.fail(f"{_short(name)} is bound twice", at)
        var = env[name] = Var(index, aval)
        return var

    def equation(self, env: dict[str, Var], n: int) -> Eqn:
        """Return `%0: f32[3] = mul %arg0, 2.0:f32[3]`, up to the end of the line."""
        start = self.at
        bindings = []
        if self.accept("("):
            self.take(")")
        else:
            bindings.append(self.binding())
            while self.accept(","):
                bindings.append(self.binding())
        self.take("=")
        at = self.at
        operation = self.operation()
        ins = tuple(self.atoms(env))
        types = tuple([a.aval for a in ins])
        avals = operation.result_types.get(types)
        if avals is None:
            avals = operation.result_types[types] = tuple(self.checked(at, operation.prim.abstract_eval, *types))
        if tuple([b[2] for b in bindings]) != avals:
            bound, inferred = (", ".join(map(str, side)) or "nothing" for side in ([b[2] for b in bindings], avals))
            self.fail(f"{operation.prim.name} gives {inferred}, the equation says {bound}", start)
        outs = tuple([self.bind(env, b, n + k) for k, b in enumerate(bindings)])
        return Eqn(operation.prim, ins, outs, next(self.sources, None))

    def checked(self, at: int, rule: Callable[..., T], /, *args: object, **kwargs: object) -> T:
        """Call a rule of a primitive. An exception of the rule becomes a ParseError."""
        try:
            return rule(*args, **kwargs)
        except FxadError as e:
            self.fail(e.message, at)
        except Exception as e:  # noqa: BLE001
            self.fail(f"{type(e).__name__}: {_short(str(e))}", at)

    # ------------------------------------------------------------------------------------------------- values

    def aval(self) -> Aval:
        """Return `f32[3,4]`."""
        aval = self.types.get(self.tokens[self.at])
        if aval is not None:
            self.at += 1
        else:
            token = self.take_kind("type", "a type as in 'f32[3,4]'")
            match = _TYPE.fullmatch(token)
            if match is None or match[1] not in dtypes.BY_SHORT:
                self.fail(f"{_short(token)} is not a type", self.at - 1)
            sizes = match[2].split(",") if match[2] else []
            if any([len(size) > 19 for size in sizes]):
                self.fail(f"{_short(token)} has a size that is too large", self.at - 1)
            shape = tuple(map(int, sizes)) if match[3] is None else self.symbolic(match[3])
            aval = self.types[token] = self.checked(self.at - 1, Aval, shape, dtypes.BY_SHORT[match[1]])
        return aval

    def symbolic(self, text: str) -> tuple[int, ...]:
        """Return `n,2*m+1`: sizes of a type; some are named."""
        shape = self.checked(self.at - 1, Reader(text).shape)
        if None in shape:
            self.fail(f"{_short(text)} has a size '_' that is not given", self.at - 1)
        return tuple([n for n in shape if n is not None])

    def atoms(self, env: Mapping[str, Var]) -> list[Atom]:
        """Parse values separated by commas, and step over the end of the line."""
        out: list[Atom] = []
        while not self.accept("\n"):
            if out and not self.accept(","):
                self.expected("',' or the end of the line")
            token = self.tokens[self.at]
            var = env.get(token)
            if var is None and token[:1] == "%" and token_kind(token) == "variable":
                self.fail(f"{_short(token)} is not bound")
            out.append(self.literal() if var is None else var)
            self.at += var is not None
        return out

    def literal(self) -> Lit:
        """Return `2.0:f32[3]`, `complex(1.0, nan):c64[]`."""
        at = self.at
        if self.accept("complex"):
            self.take("(")
            parts = [self.element()]
            self.take(",")
            parts.append(self.element())
            self.take(")")
        else:
            parts = [self.element()]
        self.take(":")
        aval = self.aval()
        key = (" ".join(parts), aval)
        lit = self.literals.get(key)
        if lit is None:
            paired = dtypes.is_complex(aval.dtype)
            if token_kind(parts[0]) == "size" and len(parts) == 1:
                size = self.checked(at, read_size, parts[0][1:-1])
                lit = self.literals[key] = self.checked(at, Lit.of, size, aval)
                return lit
            bits = [scalars.read(part, dtypes.real_part(aval.dtype)) for part in parts]
            if len(parts) != 1 + paired or None in bits:
                given = f"complex({', '.join(parts)})" if len(parts) == 2 else parts[0]
                self.fail(f"{_short(given)} is not a value of {aval}", at)
            lit = self.literals[key] = Lit(b"".join([b for b in bits if b is not None]), aval)
        return lit

    def element(self) -> str:
        """Step over the element of a literal, or over one part of it, and return the token."""
        token = self.tokens[self.at]
        if token_kind(token) not in ("number", "word", "size"):
            self.expected("a value as in '%0' or '1.0:f32[]'")
        self.at += 1
        return token

    def quoted(self, token: str) -> str:
        """Return the text in a string token, which was the last one."""
        try:
            return str(json.loads(token))
        except ValueError:
            self.fail(f"{_short(token)} is not a string of JSON", self.at - 1)

    # --------------------------------------------------------------------------------------------- primitives

    def operation(self) -> _Operation:
        """Parse `reduce_sum[axes=(0,)]`. Operations are cached by their tokens, because programs repeat them."""
        at = self.at
        end = at
        if self.tokens[at + 1 : at + 2] == ["["]:
            with suppress(ValueError):  # when it does not end
                end = self.tokens.index("]", at)
        written = tuple(self.tokens[at : end + 1])
        operation = self.operations.get(written)
        if operation is None:
            operation = self.operations[written] = _Operation(self.primitive())
        else:
            self.at = end + 1
        return operation

    def primitive(self) -> Primitive:
        """Parse an operation that is not in the cache."""
        at = self.at
        name = self.take_kind("word", "an operation")
        cls = self.primitives.get(name)
        if cls is None:
            self.fail(f"there is no operation {_short(name)!r}", at, remedy=_OWN.format(name=repr(_short(name))))
        fields = fields_of(cls)
        parameters = (
            self.fields(at, name, fields, "]") if self.accept("[") else self.check_complete(at, name, fields, {})
        )
        return self.checked(at, cls, **parameters)

    def record(self, cls: type[Record], depth: int) -> Record:
        """Return `batch_rule(size=2, body=@f)`."""
        if depth > _NESTING:
            self.fail(f"more than {_NESTING} parameters in each other")
        at, name = self.at, self.tokens[self.at]
        self.at += 2
        return self.checked(at, cls, **self.fields(at, name, fields_of(cls), ")", depth))

    def fields(self, at: int, name: str, fields: Mapping[str, Field], close: str, depth: int = 0) -> dict[str, Param]:
        """Return the parameters up to `close`, which is stepped over."""
        values: dict[str, Param] = {}
        for field, value in self.comma_separated(lambda: self.field(name, fields, depth), close):
            if field in values:
                self.fail(f"{name}: parameter {field} is given twice", at)
            values[field] = value
        return self.check_complete(at, name, fields, values)

    def check_complete(
        self, at: int, name: str, fields: Mapping[str, Field], values: dict[str, Param]
    ) -> dict[str, Param]:
        """Return the parameters, of which none may be missing."""
        missing = [f.name for f in fields.values() if f.required and f.name not in values]
        if missing:
            self.fail(f"{name}: parameter {missing[0]} is missing", at)
        return values

    def field(self, name: str, fields: Mapping[str, Field], depth: int) -> tuple[str, Param]:
        """Return `axes=(0,)`."""
        field = fields.get(self.take_kind("word", "a parameter"))
        if field is None:
            self.fail(f"{name} has no parameter {_short(self.tokens[self.at - 1])}", self.at - 1)
        self.take("=")
        at = self.at
        value = self.value(depth, field.records)
        if not self.checked(at, field.takes, value):
            given = " ".join(self.tokens[at : self.at])
            self.fail(f"{name}: parameter {field.name} is {field.type}, got {_short(given)}", at)
        return field.name, value

    def value(self, depth: int, records: Records) -> Param:
        """Return a parameter of any kind; `records` are those that its type names."""
        token = self.tokens[self.at]
        if self.tokens[self.at + 1 : self.at + 2] == [":"] or token == "complex":
            return self.literal()
        if token == "(":
            return self.items(depth + 1, records)
        if token in records and self.tokens[self.at + 1 : self.at + 2] == ["("]:
            return self.record(records[token], depth + 1)
        if token_kind(token) == "type":
            return self.aval()
        if token_kind(token) == "label" and token not in self.functions:
            self.fail(f"there is no function {_short(token)} before this line")
        return self.token_value()

    def token_value(self) -> Param:
        """Return a parameter that is one token."""
        token = self.tokens[self.at]
        of_kind = token_kind(token)
        self.at += 1
        if of_kind == "label":
            return self.functions[token]
        if of_kind == "number" and _INT.fullmatch(token):
            return int(token, 16 if "x" in token else 10)
        if of_kind == "string":
            return self.quoted(token)
        if of_kind == "size":
            return self.checked(self.at - 1, read_size, token[1:-1])
        if token in _WORDS:
            return _WORDS[token]
        if token not in dtypes.BY_SHORT:
            self.at -= 1
            self.expected("a parameter's value")
        return dtypes.BY_SHORT[token]

    def items(self, depth: int, records: Records) -> tuple[Param, ...]:
        """Return `(1, 2)`, `(1,)`, `()`."""
        if depth > _NESTING:
            self.fail(f"more than {_NESTING} tuples in each other")
        self.take("(")
        items: list[Param] = []
        while not self.accept(")"):
            items.append(self.value(depth, records))
            if not self.accept(","):
                if len(items) == 1:
                    self.take(",")
                self.take(")")
                break
        return tuple(items)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
