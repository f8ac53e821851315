"""Writes the overloads of `grad`, `value_and_grad`, `jacfwd`, `jacrev`, `hessian`, and the types of their decorators.

python docs/overloads.py            write them into fxad/api/gradients.py and fxad/api/gradient_decorators.py

Python has no type for a function of a type, such as "the type of the derivative, given the type of the argument". So
each derivative has an overload for each choice of arguments, for programs, for functions and for decorators. The tables
below say how they differ, and a test compares the files with them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ROOT / "fxad" / "api" / "gradients.py"
DECORATORS = ROOT / "fxad" / "api" / "gradient_decorators.py"

# How a call writes the choice of arguments.
NUMBERS = {
    "0": "argnums: Literal[0] = 0",
    "1": "argnums: Literal[1]",
    "2": "argnums: Literal[2]",
    "01": "argnums: tuple[Literal[0], Literal[1]]",
    "Aux": "argnums: Literal[0] = 0",
}
IN_WORDS = {"0": "argument 0", "1": "argument 1", "2": "argument 2", "01": "arguments 0 and 1"}
NO_AUX, AUX, ANY_AUX = "has_aux: Literal[False] = False", "*, has_aux: Literal[True]", "has_aux: bool = False"
ANY_NUMBER = "argnums: Argnums = 0"


@dataclass(frozen=True)
class Row:
    """An overload: the choice of arguments, the types of the parameters, of the result and of its derivative."""

    choice: str
    parameters: str
    result: str
    derivative: str

    def signature(self, f: str, derivative: str) -> tuple[str, str]:
        """Return the types of the function and of its derivative, which are of these kinds."""
        types = f"Concatenate[{self.parameters}, P]"
        return f"{f}[{types}, {self.result}]", f"{derivative}[{types}, {self.derivative}]"

    @property
    def options(self) -> str:
        return f"{NUMBERS[self.choice]}, {AUX if self.choice == 'Aux' else NO_AUX}"


def rows(plain: str, aux: str) -> tuple[Row, ...]:
    """Return the rows of a derivative of a scalar function. The texts have {} for the derivative by the argument."""
    chosen = {"0": ("A", "A"), "1": ("A, B", "B"), "2": ("A, B, C", "C"), "01": ("A, B", "tuple[A, B]")}
    return (
        *[Row(choice, types, "Array", plain.format(x)) for choice, (types, x) in chosen.items()],
        Row("Aux", "A", "tuple[Array, X]", aux.format("A")),
    )


@dataclass(frozen=True)
class Derivative:
    """The overloads of one kind of derivative.

    `of_function` is the type of the derivative of a function. `any_program` has the rows of programs for which no other
    row is. `decorators` are the choices of arguments for which a decorator has a type.
    """

    prefix: str
    in_words: str
    rows: tuple[Row, ...]
    of_function: str
    any_program: tuple[str, ...]
    decorators: tuple[str, ...]


GRADIENT = rows("{}", "tuple[{}, X]")
VALUE_AND_GRADIENT = rows("tuple[Array, {}]", "tuple[tuple[Array, X], {}]")
# The Jacobian of a function of one array has the tree of the result, that of a function with one result the tree of the
# argument.
JACOBIAN = (Row("0", "Array", "R", "R"), *GRADIENT)
HESSIAN = (
    Row("0", "Array", "R", "R"),
    Row("1", "A, Array", "R", "R"),
    Row("Aux", "Array", "tuple[R, X]", "tuple[R, X]"),
)
ALL = ("0", "1", "2", "01", "Aux")
ANY_PROGRAM = (f"f: Program[P, object], {ANY_NUMBER}, {ANY_AUX}) -> Program[P, Any]",)


def program_of_scalar(derivative: str) -> tuple[str, ...]:
    """Return the rows of programs of which mypy does not know the parameters, `Program[..., Array]`, and of others."""
    return (
        f"f: Program[P, Array], {NUMBERS['0']}, {NO_AUX}) -> Program[P, {derivative}]",
        f"f: Program[P, object], argnums: Argnums, {ANY_AUX}) -> Program[P, Any]",
    )


G = Derivative("Gradient", "The gradient in", GRADIENT, "Callable", program_of_scalar("Any"), ALL)
V = Derivative(
    "ValueAndGradient",
    "The value, and the gradient in",
    VALUE_AND_GRADIENT,
    "Callable",
    program_of_scalar("tuple[Array, Any]"),
    ALL,
)
J = Derivative("Jacobian", "The Jacobian in", JACOBIAN, "Derived", ANY_PROGRAM, ALL)
H = Derivative("Hessian", "The Hessian in", HESSIAN, "Derived", ANY_PROGRAM, ("0",))

# Each function, its kind, and its options beside `argnums` and `has_aux`.
STATIC = {"static_argnums": "Argnums", "static_argnames": "Argnames"}
GRADIENT_OPTIONS = {"holomorphic": "bool", "allow_int": "bool", "reduce_axes": "Sequence[str]", **STATIC}
OPTIONS: dict[str, tuple[Derivative, dict[str, str]]] = {
    "grad": (G, GRADIENT_OPTIONS),
    "value_and_grad": (V, GRADIENT_OPTIONS),
    "jacfwd": (J, {"holomorphic": "bool", **STATIC}),
    "jacrev": (J, {"holomorphic": "bool", "allow_int": "bool", **STATIC}),
    "hessian": (H, {"holomorphic": "bool", **STATIC}),
}


def optional(options: dict[str, str]) -> str:
    """Return the text of parameters with defaults."""
    return ", ".join([f"{name}: {type_} = ..." for name, type_ in options.items()])


def any_function(kind: Derivative, options: dict[str, str]) -> list[str]:
    """Return the rows of functions for which no other row is.

    Where a function whose result is no scalar is an error, the rows with options require one of them each: a row that
    requires none would accept that function.
    """
    if kind.of_function == "Derived":
        positional = optional({k: v for k, v in options.items() if k not in STATIC})
        return [
            f"f: Callable[P, Any], {ANY_NUMBER}, {ANY_AUX}, {positional}, *, {optional(STATIC)}) -> Derived[P, Any]"
        ]
    required = [
        f"f: Callable[P, object], {ANY_NUMBER}, {ANY_AUX}, *, {name}: {options[name]}, "
        f"{optional({k: v for k, v in options.items() if k != name})}) -> Callable[P, Any]"
        for name in ("static_argnums", "holomorphic", "allow_int", "reduce_axes", "static_argnames")
    ]
    return [f"f: Callable[P, Any], argnums: Argnums, {ANY_AUX}) -> Callable[P, Any]", *required]


def decorator_name(kind: Derivative, choice: str) -> str:
    """Return the name of the type of a decorator. That of a Jacobian with auxiliary results is that of a gradient."""
    return "GradientAux" if kind is J and choice == "Aux" else f"{kind.prefix}{choice}"


def overloads(name: str) -> list[str]:
    """Return the lines of all overloads of a function."""
    kind, options = OPTIONS[name]
    lines = ["f: NoFunction, *args: Any, **options: Any) -> Callable[..., Any]"]
    for f, derivative, others in (
        ("ProgramProtocol", "Program", kind.any_program),
        ("Callable", kind.of_function, any_function(kind, options)),
    ):
        for row in kind.rows:
            function, result = row.signature(f, derivative)
            lines.append(f"f: {function}, {row.options}) -> {result}")
        lines += others
    for choice in kind.decorators:
        (row, *_) = [r for r in kind.rows if r.choice == choice]
        options_text = row.options.removeprefix("*, ")
        lines.append(f"*, {options_text.replace('*, ', '')}) -> {decorator_name(kind, choice)}")
    lines.append(f"*, {ANY_NUMBER}, {ANY_AUX}, {optional(options)}) -> OtherDerivative")
    return [line for text in lines for line in ("@overload", f"def {name}({text}: ...")]


def decorator(kind: Derivative, choice: str) -> list[str]:
    """Return the lines of the type of a decorator."""
    words = f"{kind.in_words} {IN_WORDS[choice]}." if choice != "Aux" else AUX_IN_WORDS[kind.prefix]
    lines = [f"class {kind.prefix}{choice}(Protocol):", f'    """{words}"""', ""]
    types: list[tuple[str, str]] = []
    for f, derivative in (("ProgramProtocol", "Program"), ("Callable", kind.of_function)):
        types += [row.signature(f, derivative) for row in kind.rows if row.choice == choice]
        if kind.of_function == "Derived":
            types.append(ANY_OTHER[derivative])
    for function, result in types:
        lines += ["    @overload", f"    def __call__(self, f: {function}, /) -> {result}: ..."]
    return [*lines, "", ""]


# The overload of a decorator for all other functions, by the type of the derivative.
ANY_OTHER = {
    "Program": ("Program[P, object]", "Program[P, Any]"),
    "Derived": ("Callable[P, Any]", "Derived[P, Any]"),
}
AUX_IN_WORDS = {
    "Gradient": "The derivative in argument 0, with auxiliary results.",
    "ValueAndGradient": "The value with auxiliary results, and the gradient in argument 0.",
}


def decorators() -> list[str]:
    """Return the lines of the types of all decorators."""
    named = [(kind, choice) for kind in (G, V, J, H) for choice in kind.decorators]
    return [
        line
        for kind, choice in named
        if decorator_name(kind, choice) == f"{kind.prefix}{choice}"
        for line in decorator(kind, choice)
    ]


def written(text: str, name: str, lines: Sequence[str]) -> str:
    """Return the text of a file with these lines between the comments of this name."""
    begin, end = f"# overloads of {name}: docs/overloads.py writes them\n", "# end of overloads\n"
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    assert pattern.search(text), f"there are no overloads of {name}"
    return pattern.sub(lambda _: begin + "\n".join(lines).rstrip() + "\n" + end, text)


def files() -> dict[Path, str]:
    """Return the text that each file should have."""
    functions, types = [path.read_text(encoding="utf-8") for path in (FUNCTIONS, DECORATORS)]
    for name in OPTIONS:
        functions = written(functions, name, overloads(name))
    return {FUNCTIONS: functions, DECORATORS: written(types, "decorators", decorators())}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
