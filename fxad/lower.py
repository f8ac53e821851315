"""Jaxpr -> StableHLO.

Pure: equal programs give byte-identical StableHLO, with one function per distinct sub-program. The module is written as
MLIR text in generic form, and passed to XLA as text. Measured times (jaxlib 0.10.2, a chain of 4,000 adds, us per
equation): text takes 0.2 to write (the bare calls) and 2.1 for XLA to parse. jaxlib's bindings take 0.9 to make the
operations, 0.2 to write them as bytecode and 0.9 to read that. The sums are about equal, and text needs no MLIR
context. So threads share nothing, a lowered program is a plain value, and fxad depends only on the names of StableHLO's
operations.

Names in the module are numbers (`@f0`, `%3`), because names are not part of a program's value. The user's names and
lines are in the locations, which XLA keeps as metadata. The module of a function `f` that returns `x * 2.0`:

    func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32>) {
    %0 = "stablehlo.constant"() {value = dense<0x40000000> : tensor<3xf32>} : () -> tensor<3xf32> loc(#L0)
    %1 = "stablehlo.multiply"(%arg0, %0) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32> loc(#L0)
    "func.return"(%1) : (tensor<3xf32>) -> () loc(#L1)
    } loc(#L1)
    #L0 = loc("f/mul"("f"("model.py":3:0)))
    #L1 = loc("f")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Final, TypeAlias, cast, final

from fxad import dtypes, lowering
from fxad.core.builder import Builder
from fxad.core.dataclasses import dataclass
from fxad.core.layout import Times, Unknown, UpTo
from fxad.core.memo import by_value
from fxad.errors import ParameterError, name_equation
from fxad.ir import (
    INT32_SCALAR,
    Aval,
    Eqn,
    HigherOrder,
    Hlo,
    HloValue,
    Jaxpr,
    Lit,
    Primitive,
    Region,
    Var,
    Zero,
    all_prims,
    source_location,
    source_text,
)
from fxad.lowering.compared_extrema import with_extrema_in_branches
from fxad.lowering.known_faults import FOLDS, MOVED, REPAIRS, Kind
from fxad.lowering.locations import Locations
from fxad.lowering.mlir_text import (
    axis_names_text,
    dense_attribute,
    mesh_text,
    sharding_attribute,
    sharding_per_value,
    tensor_type,
)
from fxad.lowering.ordered_effects import DONE, with_host_calls_ordered
from fxad.lowering.overlapping_updates import Update, overlapping_updates
from fxad.lowering.stored_values import StoredValue, stored_values
from fxad.primitives.check import CallsHost, calls_host
from fxad.primitives.control.shard_map import devices_needed, runs_on_devices
from fxad.primitives.meshes import (
    DimensionAxes,
    Ids,
    MeshAxes,
    local_shape,
    mesh_within,
    with_replica_axis,
    without_replica_axis,
)
from fxad.primitives.stablehlo import lower_compare

# Appends the operations of a block to the function that is being written.
_WriteBlock: TypeAlias = Callable[[], None]

_NO_ATTRS: Final[Mapping[str, str]] = MappingProxyType({})
# XLA aborts the process if the bodies of these operations have loops.
_REDUCTIONS: Final = frozenset({"stablehlo.reduce", "stablehlo.reduce_window"})


@final
@dataclass(frozen=True, slots=True)
class ModuleSharding:
    """The sharding of a module: for each operand and result the number of its mesh, and the axes that divide it.

    Each mesh has an index for each of the `devices`: one that needs fewer devices has a replica axis, along which
    devices compute the same.
    """

    devices: int
    meshes: tuple[MeshAxes, ...]
    ins: tuple[tuple[int, DimensionAxes], ...]
    outs: tuple[tuple[int, DimensionAxes] | None, ...]  # None: XLA decides how the result is divided
    ids: Ids = ()  # of the devices; () are the first ones

    @property
    def devices_of_maps(self) -> tuple[int, ...]:
        """The distinct numbers of devices that the maps of the program need, without replicas: for the message that
        there are too few devices."""
        counts = [prod([n for _, n in without_replica_axis(mesh)]) for mesh in self.meshes]
        return tuple(sorted({n for n in counts if n > 1}))

    def parts(self, where: Sequence[tuple[int, DimensionAxes] | None], avals: Sequence[Aval]) -> list[Aval | None]:
        """Return the types of the parts of operands or results; None where XLA decides."""
        return [
            None if w is None else a.with_shape(local_shape(self.meshes[w[0]], w[1], a.shape))
            for w, a in zip(where, avals, strict=True)
        ]


@final
@dataclass(frozen=True, slots=True)
class LoweredModule:
    """A StableHLO module, as a value.

    `body` is the text after the header of `@main`: its operations and the other functions. `locations` defines the
    source locations of operations; it is not part of `text()`. `host` are the calls of the host, with the user's lines.
    If `calls_host` is True, the program may call the host, and the module has one more result, `DONE`, the last one.
    `sharding` says how operands and results are divided among devices; None for a program that runs on one device.
    """

    in_avals: tuple[Aval, ...]
    out_avals: tuple[Aval, ...]
    body: str
    locations: str
    host: tuple[tuple[CallsHost, str], ...] = ()
    calls_host: bool = False
    sharding: ModuleSharding | None = None

    @property
    def results(self) -> tuple[Aval, ...]:
        """The types of the results of the module: those of the program, and `DONE` if it may call the host."""
        return (*self.out_avals, DONE) if self.calls_host else self.out_avals

    def source(self, donate: tuple[int, ...] = ()) -> str:
        """Return the module text for XLA, with locations. Results overwrite operands in `donate` (see `aliases`).

        Raises: ParameterError if an operand in `donate` does not exist.
        """
        header = _header("public @main", self.in_avals, self.results, self._aliases(donate), self.sharding)
        return f"{header}{self.body}{self.locations}"

    def _aliases(self, donate: tuple[int, ...]) -> dict[int, int]:
        """Return a map from donated operands to the results that reuse their memory.

        On several devices, the parts of both must have one type. The other donated operands get the results whose
        sharding XLA chooses, if the whole arrays have one type: XLA is expected to choose that of the operand.
        """
        sharding = self.sharding
        if sharding is None:
            return aliases(self.in_avals, self.out_avals, donate)
        ins, outs = sharding.parts(sharding.ins, self.in_avals), sharding.parts(sharding.outs, self.out_avals)
        by_parts = aliases(ins, outs, donate)
        other_operands = [k for k in donate if k not in by_parts]
        left_to_xla = [a if where is None else None for where, a in zip(sharding.outs, self.out_avals, strict=True)]
        return by_parts | aliases(self.in_avals, left_to_xla, other_operands)

    def text(self) -> str:
        """Return StableHLO in MLIR's generic form, as XLA reads it, without locations."""
        header = _header("public @main", self.in_avals, self.results, {}, self.sharding)
        return header + _LOCATION.sub("", self.body)

    def pretty(self) -> str:
        """Return StableHLO in MLIR's pretty form, checked by MLIR's verifier. Raises: CompileError if it is not
        valid."""
        return lowering.mlir.pretty(self.source())

    def __str__(self) -> str:
        return self.pretty()


_LOCATION: Final = re.compile(r" loc\(#L\d+\)$", re.MULTILINE)  # at the end of an operation


@by_value
def lower_jaxpr(jaxpr: Jaxpr, platform: str = "cpu") -> LoweredModule:
    """Return the StableHLO module of a program; `@main` takes its operands and returns its results, in order.

    Calls of libraries and of the host depend on the platform, and so does the form of products of arrays.

    Law: a pure function of the program's value, except for the locations, which contain names and source lines.
    Cost: 1 us an equation: its text, the rule of its primitive, types and locations.
    """
    rewritten = _rewritten_for_xla(jaxpr, platform)
    module = _Module(devices_needed(jaxpr), platform, overlapping_updates(rewritten))
    if platform == "cpu" and not runs_on_devices(jaxpr):
        module.stored = stored_values(rewritten)
    texts = [module.function(rewritten, ())]
    for sub, mesh in module.queue:  # grows while it is walked: a call appends the function it needs
        name = f"private {module.symbols[sub, mesh]}"
        texts.append(_header(name, sub.in_avals, sub.out_avals, {}))
        texts.append(module.function(sub, mesh))
    sharding = module.sharding_of(jaxpr)
    texts += [f"sdy.mesh @mesh{k} = {mesh_text(mesh)}\n" for k, mesh in enumerate(sharding.meshes if sharding else ())]
    return LoweredModule(
        jaxpr.in_avals,
        jaxpr.out_avals,
        "".join(texts),
        module.locations.definitions(),
        tuple(module.host),
        calls_host(jaxpr),
        sharding,
    )


def _rewritten_for_xla(jaxpr: Jaxpr, platform: str) -> Jaxpr:
    """Return the program that is written to the module of `jaxpr`. The docstring of `fxad.lowering` lists the
    rewrites."""
    if not runs_on_devices(jaxpr):
        rewritten = with_host_calls_ordered(jaxpr)
        return with_extrema_in_branches(rewritten) if platform == "cpu" else rewritten
    rewritten = lowering.nan_of_extrema.with_nan_kept(jaxpr)
    rewritten = lowering.failed_checks.with_loops_ended(rewritten)
    rewritten = with_host_calls_ordered(rewritten)
    return lowering.host_calls_on_devices.with_host_calls_on_devices(rewritten, devices_needed(jaxpr))


def _identity(aval: Aval) -> Jaxpr:
    b = Builder()
    return b.build([b.input(aval)], "identity")


def _calls_loop(body: Jaxpr) -> bool:
    """Return True if the body calls a function that has a loop."""
    runs = [b.runs for p in all_prims(body) if isinstance(p, HigherOrder) for b in p.layout.bodies]
    return any([isinstance(r, Times | UpTo | Unknown) for r in runs])


def aliases(ins: Sequence[Hashable], outs: Sequence[Hashable], donate: Sequence[int]) -> dict[int, int]:
    """Return a map from donated operands to the results that reuse their memory: the first unassigned one of the same
    type.

    No result can reuse an operand that is not in the map. Raises: ParameterError if an operand does not exist.
    """
    for k in donate:
        if not 0 <= k < len(ins):
            raise ParameterError(
                f"compile: donate: operand {k} does not exist, the program has {len(ins)}",
                remedy="number the operands from 0, or name arguments: compile(donate=...)",
            )
    unassigned: dict[Hashable, list[int]] = {}  # results, by type
    for j, aval in enumerate(outs):
        unassigned.setdefault(aval, []).append(j)
    return {k: unassigned[ins[k]].pop(0) for k in sorted(set(donate)) if unassigned.get(ins[k])}


def _header(
    name: str,
    ins: tuple[Aval, ...],
    outs: tuple[Aval, ...],
    alias: Mapping[int, int],
    sharding: ModuleSharding | None = None,
) -> str:
    attrs = [[f"tf.aliasing_output = {alias[k]} : i32"] if k in alias else [] for k in range(len(ins))]
    results = [tensor_type(a) for a in outs]
    if sharding is not None:
        for k, (where, a) in enumerate(zip(sharding.ins, ins, strict=True)):
            attrs[k].append(f"sdy.sharding = {sharding_attribute(*where, a)}")
        # `outs` may be longer: the result that says that calls of the host are done comes last, and is not divided
        for k, (out, a) in enumerate(zip(sharding.outs, outs, strict=False)):
            if out is not None:
                results[k] += f" {{sdy.sharding = {sharding_attribute(*out, a)}}}"
    attr_texts = [f" {{{', '.join(arg_attrs)}}}" if arg_attrs else "" for arg_attrs in attrs]
    args = [f"%arg{k}: {tensor_type(a)}{attr_texts[k]}" for k, a in enumerate(ins)]
    return f"func.func {name}({', '.join(args)}) -> ({', '.join(results)}) {{\n"


@final
class _Types(dict[Aval, str]):
    """A cache of MLIR types by Aval."""

    def __missing__(self, aval: Aval) -> str:
        text = self[aval] = tensor_type(aval)
        return text


@final
class _Module:
    """The shared state of the functions of one module: names of sub-programs, types, locations."""

    __slots__ = (
        "channels", "devices", "host", "locations", "meshes", "overlapping", "platform", "queue", "stored", "symbols",
        "types",
    )  # fmt: skip

    def __init__(self, devices: int, platform: str, overlapping: frozenset[Update]) -> None:
        self.platform = platform
        self.overlapping = overlapping  # updates of an array from itself: what is written is computed in a branch
        self.stored: frozenset[StoredValue] = frozenset()  # the values that are written as calls which XLA keeps
        self.host: list[tuple[CallsHost, str]] = []
        self.channels = 0
        self.devices = devices
        self.meshes: dict[MeshAxes, int] = {}
        # a function with collectives or host calls is written for each mesh of the devices that run it
        self.symbols: dict[tuple[Jaxpr, MeshAxes], str] = {}
        self.queue: list[tuple[Jaxpr, MeshAxes]] = []
        self.types = _Types()
        self.locations = Locations()

    def symbol(self, sub: Jaxpr, mesh: MeshAxes) -> str:
        """Return the symbol of a sub-program's function, numbered by first use."""
        depends_on_mesh = mesh and (sub.free_axes or runs_on_devices(sub) or calls_host(sub))
        key = (sub, mesh if depends_on_mesh else ())
        symbol = self.symbols.get(key)
        if symbol is None:
            symbol = self.symbols[key] = f"@f{len(self.queue)}"
            self.queue.append(key)
        return symbol

    def mesh_number(self, mesh: MeshAxes) -> int:
        """Return the number of a mesh that covers all devices."""
        return self.meshes.setdefault(mesh, len(self.meshes))

    def sharding_of(self, jaxpr: Jaxpr) -> ModuleSharding | None:
        """Return the sharding of the module of the whole program; None if it runs on one device."""
        if not self.meshes:
            return None
        ids = lowering.shardings.ids_of_devices(jaxpr, self.devices)
        ins, outs = [
            [None if d is None else (self.mesh_number(with_replica_axis(d[0], self.devices)), d[1]) for d in side]
            for side in lowering.shardings.of_operands_and_results(jaxpr)
        ]
        all_ins = tuple([(0, ()) if d is None else d for d in ins])  # each device has the whole of the others
        return ModuleSharding(self.devices, tuple(self.meshes), all_ins, tuple(outs), ids)

    def function(self, jaxpr: Jaxpr, mesh: MeshAxes) -> str:
        """Return the operations of a program, up to the end of its function."""
        writer = _Function(self, jaxpr.name, mesh)
        args = [(f"%arg{k}", self.types[v.aval]) for k, v in enumerate(jaxpr.ins)]
        if (jaxpr, mesh) in self.symbols:  # a function that others call: XLA may inline it for values of any kind
            writer.kinds.update([(name, Kind.UNKNOWN) for name, _ in args])
        writer.block(jaxpr, args, "func.return")
        writer.lines.append(f"}}{self.locations.alias(jaxpr.name, '', None)}\n")
        return "".join(writer.lines)


class _Operations:
    """Operations as text, in order. It names the results, and nests blocks: each block has its own constants."""

    __slots__ = ("constants", "kinds", "lines", "location", "n_names", "types")

    def __init__(self, types: _Types) -> None:
        self.lines: list[str] = []
        self.types = types
        self.n_names = 0  # SSA names are numbered through the function, nested blocks included
        self.location = ""  # the alias of the location of the equation that is being written
        self.constants: dict[Lit, HloValue] = {}  # of the block being written
        self.kinds: dict[str, Kind] = {}  # of values, by name, if they have one

    def append(self, head: str, operand_types: str, outs: Sequence[Aval]) -> tuple[HloValue, ...]:
        """Append an operation whose text is complete except for its results."""
        n = self.n_names
        self.n_names = n + 1
        if len(outs) == 1:
            out = (f"%{n}", self.types[outs[0]])
            self.lines.append(f"{out[0]} = {head} : ({operand_types}) -> {out[1]}{self.location}\n")
            return (out,)
        results = tuple([(f"%{n}#{k}", self.types[a]) for k, a in enumerate(outs)])
        bind = f"%{n}:{len(outs)} = " if outs else ""
        result_types = ", ".join([r[1] for r in results])
        self.lines.append(f"{bind}{head} : ({operand_types}) -> ({result_types}){self.location}\n")
        return results

    def constant(self, lit: Lit) -> HloValue:
        """Return a splat constant, once per block; see `fxad.ir.Hlo`."""
        value = self.constants.get(lit)
        if value is None:
            (value,) = self.append(f'"stablehlo.constant"() {{value = {dense_attribute(lit)}}}', "", (lit.aval,))
            self.constants[lit] = value
            self.kinds[value[0]] = Kind.CONSTANT
        return value

    def zeros(self, aval: Aval) -> HloValue:
        """Return a constant of zeros."""
        return self.constant(Zero(aval).instantiate())

    def block_args(self, avals: Sequence[Aval]) -> list[HloValue]:
        """Begin a block: its arguments."""
        args = [(f"%r{self.n_names}_{k}", self.types[a]) for k, a in enumerate(avals)]
        self.n_names += 1
        if args:
            self.lines.append(f"^bb0({', '.join([f'{v}: {t}' for v, t in args])}):\n")
        return list(args)

    def nested(self, writers: Sequence[_WriteBlock]) -> str:
        """Return the text of nested blocks, each written by a function."""
        lines, constants, location = self.lines, self.constants, self.location
        texts = []
        for write in writers:
            self.lines, self.constants = [], {}
            write()
            texts.append("{\n" + "".join(self.lines) + "}")
        self.lines, self.constants, self.location = lines, constants, location
        return f" ({', '.join(texts)})"


@final
class _Function(_Operations):
    """Translates the equations of one function to operations: the `Hlo` of the lowering rules.

    XLA compiles some operations to wrong numbers (`lowering.known_faults`). `op` writes these in another form. An
    operation in `REPAIRS` is replaced on CPUs. In `FOLDS` are pairs of operations that XLA folds into one. `op` writes
    a barrier between the two, as in `a / (b / c)`:

        %0 = divide %b, %c          kinds["%0"] is QUOTIENT
        %1 = optimization_barrier %0
        %2 = divide %a, %1
    """

    __slots__ = ("mesh", "module", "name")

    def __init__(self, module: _Module, name: str, mesh: MeshAxes) -> None:
        super().__init__(module.types)
        self.module = module
        self.name = name
        self.mesh = mesh  # the axes of the devices that run this function; see `fxad.ir.Hlo`

    def block(self, jaxpr: Jaxpr, args: Sequence[HloValue], terminator: str) -> None:
        """Write the operations of a body over `args`, ended by `terminator`."""
        env: dict[Var, HloValue] = dict(zip(jaxpr.ins, args, strict=True))
        alias, name, constant = self.module.locations.alias, self.name, self.constant
        overlapping, stored = self.module.overlapping, self.module.stored
        eqn: Eqn | None = None
        try:
            for eqn in jaxpr.eqns:
                prim, ins, outs = eqn.prim, eqn.ins, eqn.outs
                self.location = alias(name, prim.name, eqn.source)
                if stored and outs and (jaxpr, outs[0]) in stored:
                    operands = [env[x] if type(x) is Var else constant(x) for x in ins]
                    env[outs[0]] = self._stored_call(eqn, operands)
                elif len(ins) == 2 and len(outs) == 1:  # most equations; this fast path halves the cost of the loop
                    # none is in `overlapping`: a `dynamic_update_slice` of two operands has no start index, so its
                    # array is a scalar, which is overwritten whole
                    (x, y), (out,) = ins, outs
                    a = env[x] if type(x) is Var else constant(x)
                    b = env[y] if type(y) is Var else constant(y)
                    (env[out],) = prim.lower(self, (a, b), (x.aval, y.aval), (out.aval,))
                else:
                    operands = [env[x] if type(x) is Var else constant(x) for x in ins]
                    if overlapping and outs and (jaxpr, outs[0]) in overlapping:  # operand 1 is what is written
                        (operands[1],) = self.opaque_call(_identity(ins[1].aval), operands[1:2])
                    results = prim.lower(self, operands, [x.aval for x in ins], [v.aval for v in outs])
                    env.update(zip(outs, results, strict=True))
        except Exception as e:
            if eqn is not None:
                equation = f"{eqn.prim.name} of {', '.join([str(a.aval) for a in eqn.ins])}"
                name_equation(e, equation, source_text(eqn.source))
            raise
        self.location = alias(name, "", None)
        self.op(terminator, [env[x] if type(x) is Var else constant(x) for x in jaxpr.outs], ())

    def op(
        self,
        name: str,
        operands: Sequence[HloValue],
        outs: Sequence[Aval],
        attrs: Mapping[str, str] = _NO_ATTRS,
        regions: Sequence[Jaxpr | Region | str | _WriteBlock] = (),
    ) -> tuple[HloValue, ...]:
        """Append an operation; see `fxad.ir.Hlo`. A region may also be a function that writes its block."""
        kind = Kind.NONE
        if name in FOLDS and outs[0].inexact:  # a known fault
            operands, kind = self._behind_barriers(name, operands, outs[0])
        if len(operands) == 2 and len(outs) == 1 and not attrs and not regions:  # most operations
            (a, a_type), (b, b_type) = operands
            n = self.n_names
            self.n_names = n + 1
            out = (f"%{n}", self.types[outs[0]])
            if kind:  # the operations of FOLDS whose results have a kind are all binary, so they take this path
                self.kinds[out[0]] = kind
            self.lines.append(f'%{n} = "{name}"({a}, {b}) : ({a_type}, {b_type}) -> {out[1]}{self.location}\n')
            return (out,)
        head, types = f'"{name}"({", ".join([v[0] for v in operands])})', ", ".join([v[1] for v in operands])
        if regions:
            text = self.nested([partial(self._region, r, outs) for r in regions])
            bodies = [r for r in regions if isinstance(r, Jaxpr)] if name in _REDUCTIONS else []
            if bodies and ("stablehlo.while" in text or any(map(_calls_loop, bodies))):
                raise ParameterError(
                    f"{name.removeprefix('stablehlo.')}: its body has a loop, of which XLA cannot make a reduction",
                    remedy="use lax.associative_scan or lax.scan, or write the body without a loop",
                )
            head += text
        if attrs:
            head += f" {{{', '.join([f'{k} = {v}' for k, v in attrs.items()])}}}"
        if name in MOVED and operands[0][0] in self.kinds:  # its result is what its operand is
            (out,) = self.append(head, types, outs)
            self.kinds[out[0]] = self.kinds[operands[0][0]]
            return (out,)
        if name in REPAIRS and self.platform == "cpu":  # a known fault
            return (REPAIRS[name](self, operands[0], outs[0], lambda: self.append(head, types, outs)[0]),)
        return self.append(head, types, outs)

    def _behind_barriers(self, name: str, operands: Sequence[HloValue], aval: Aval) -> tuple[list[HloValue], Kind]:
        """Return the operands of an operation, behind a barrier those that XLA would fold into it; and the kind of its
        result. All are of the type `aval`."""
        kinds = [self.kinds.get(value[0], Kind.NONE) for value in operands]
        beside_constant = Kind.CONSTANT in kinds
        after, makes = Kind.NONE, Kind.NONE
        for fold in FOLDS[name]:
            if beside_constant or not fold.beside_constant:
                after |= fold.after
                makes |= fold.makes
        separated = [
            self.append(f'"stablehlo.optimization_barrier"({value[0]})', value[1], (aval,))[0]
            if kind & after
            else value
            for value, kind in zip(operands, kinds, strict=True)
        ]
        return separated, makes

    def _region(self, region: Jaxpr | Region | str | _WriteBlock, outs: Sequence[Aval]) -> None:
        """Write a region: a body, a body with captured values, or an operation on two scalars, given by its name."""
        if isinstance(region, str):
            scalar = outs[0].with_shape(())
            self.op("stablehlo.return", self.op(region, self.block_args((scalar, scalar)), (scalar,)), ())
        elif isinstance(region, Region):
            args = self.block_args(region.body.in_avals[len(region.captured) :])
            self.block(region.body, [*region.captured, *args], "stablehlo.return")
        elif isinstance(region, Jaxpr):
            self.block(region, self.block_args(region.in_avals), "stablehlo.return")
        else:
            region()

    def call(self, body: Jaxpr, operands: Sequence[HloValue], mesh: MeshAxes = ()) -> tuple[HloValue, ...]:
        """Call the function of a sub-program; see `fxad.ir.Hlo`."""
        inside = self.mesh
        if mesh:  # further axes take the place of the replica axis
            inside = with_replica_axis(mesh_within(without_replica_axis(inside), mesh), self.module.devices)
        results = self.op("func.call", operands, body.out_avals, {"callee": self.module.symbol(body, inside)})
        self.kinds.update([(name, Kind.UNKNOWN) for name, _ in results])
        return results

    def _stored_call(self, eqn: Eqn, operands: Sequence[HloValue]) -> HloValue:
        """Return the result of an equation as a call that XLA does not inline: no kernel computes it again."""
        b = Builder()
        body = b.build(b(eqn.prim, *b.inputs([a.aval for a in eqn.ins])), eqn.prim.name)
        attrs = {
            "callee": self.module.symbol(body, ()),
            "mhlo.frontend_attributes": '{inlineable = "false"}',
        }
        return self.op("func.call", operands, body.out_avals, attrs)[0]

    def on_devices(
        self,
        body: Jaxpr,
        mesh: MeshAxes,
        in_specs: Sequence[DimensionAxes],
        out_specs: Sequence[DimensionAxes],
        operands: Sequence[HloValue],
        outs: Sequence[Aval],
    ) -> tuple[HloValue, ...]:
        """Call the function of a body on each device; see `fxad.ir.Hlo`."""
        full_mesh = with_replica_axis(mesh, self.module.devices)
        number, symbol = self.module.mesh_number(full_mesh), self.module.symbol(body, full_mesh)
        if self.module.devices == 1:  # XLA divides nothing, and does not compile a call of the host in a map
            return self.op("func.call", operands, outs, {"callee": symbol})
        # XLA needs an operand that it divides, and divides none without elements
        nonempty_ins = [k for k, a in enumerate(body.in_avals) if a.size]
        nonempty_outs = [k for k, a in enumerate(outs) if a.size]
        part_types, result_types = [body.in_avals[k] for k in nonempty_ins], [outs[k] for k in nonempty_outs]
        divided_operands, specs = [operands[k] for k in nonempty_ins], [in_specs[k] for k in nonempty_ins]
        if not divided_operands:
            divided_operands, part_types, specs = [self.zeros(INT32_SCALAR)], [INT32_SCALAR], [()]

        def write_block() -> None:
            # the arguments may be longer: the body does not read the zero that stands in for operands without elements
            args = dict(zip(nonempty_ins, self.block_args(part_types), strict=False))
            all_args = [args[k] if k in args else self.zeros(a) for k, a in enumerate(body.in_avals)]
            computed = self.op("func.call", all_args, body.out_avals, {"callee": symbol})
            self.op("sdy.return", [computed[k] for k in nonempty_outs], ())

        attrs = {
            "in_shardings": sharding_per_value(number, specs, part_types),
            "out_shardings": sharding_per_value(number, [out_specs[k] for k in nonempty_outs], result_types),
            "manual_axes": f"#sdy<manual_axes{axis_names_text([axis for axis, _ in full_mesh])}>",
        }
        computed = self.op("sdy.manual_computation", divided_operands, result_types, attrs, [write_block])
        values = dict(zip(nonempty_outs, computed, strict=True))
        return tuple([values[k] if k in values else self.zeros(a) for k, a in enumerate(outs)])

    @property
    def platform(self) -> str:
        """The platform that the module is for; see `fxad.ir.Hlo`."""
        return self.module.platform

    @property
    def devices(self) -> int:
        """The number of devices of the module; see `fxad.ir.Hlo`."""
        return self.module.devices

    def channel(self) -> int:
        """Return a number for one collective; see `fxad.ir.Hlo`."""
        self.module.channels += 1
        return self.module.channels

    def host(self, call: Primitive) -> int:
        """Return the index of a host call; see `fxad.ir.Hlo`."""
        line = source_location(self.module.locations.source(self.location))
        # `Hlo` says Primitive: its module stands below the primitives that call the host
        self.module.host.append((cast(CallsHost, call), str(line or "")))
        return len(self.module.host) - 1

    def sharding(self, mesh: MeshAxes, spec: DimensionAxes, aval: Aval) -> str:
        """Return the attribute that divides a value among the devices of a mesh; see `fxad.ir.Hlo`."""
        return sharding_attribute(self.module.mesh_number(with_replica_axis(mesh, self.module.devices)), spec, aval)

    def opaque_call(self, body: Jaxpr, operands: Sequence[HloValue]) -> tuple[HloValue, ...]:
        """Return a call in a branch whose condition is always true, which XLA cannot prove; see `fxad.ir.Hlo`.

        XLA merges no operations across the border of a branch. It removes an `optimization_barrier` before it merges,
        so a barrier alone does not suffice. The barrier inside the branch keeps XLA from turning a branch of cheap
        operations into a select.

        The condition is computed from an operand; any serves that is no constant, since XLA would decide the condition
        of one. If it inlines this function for an operand that is a constant of the caller, it decides, and merges: the
        values are the same, and memory is not saved.
        """
        values = [
            (v, a)
            for v, a in zip(operands, body.in_avals, strict=True)
            if a.size and self.kinds.get(v[0]) is not Kind.CONSTANT
        ]
        if not values or not body.outs:
            return self.call(body, operands)

        def write_call() -> None:
            results = self.op("stablehlo.optimization_barrier", self.call(body, operands), body.out_avals)
            self.op("stablehlo.return", results, ())

        def write_zeros() -> None:
            self.op("stablehlo.return", [self.zeros(a) for a in body.out_avals], ())

        return self.op("stablehlo.if", (_true(self, *values[-1]),), body.out_avals, regions=(write_call, write_zeros))


def _true(hlo: Hlo, value: HloValue, aval: Aval) -> HloValue:
    """Return an i1 that is true for every value, which XLA cannot prove: the first element has no more bits that are
    set than bits."""
    first = aval.with_shape((1,) * aval.ndim)
    if aval.ndim:
        zeros, ones = [f"array<i64: {', '.join([text] * aval.ndim)}>" for text in "01"]
        sliced = {"start_indices": zeros, "limit_indices": ones, "strides": ones}
        (value,) = hlo.op("stablehlo.slice", (value,), (first,), sliced)
    if dtypes.is_complex(aval.dtype):
        first = first.with_dtype(dtypes.real_part(aval.dtype))
        (value,) = hlo.op("stablehlo.real", (value,), (first,))
    scalar = first.with_shape(())
    bits = scalar.with_dtype(f"u{8 * scalar.dtype.itemsize}")
    (value,) = hlo.op("stablehlo.reshape", (value,), (scalar,))
    convert = "stablehlo.convert" if scalar.dtype is dtypes.bool_ else "stablehlo.bitcast_convert"
    (value,) = hlo.op(convert, (value,), (bits,))
    (count,) = hlo.op("stablehlo.popcnt", (value,), (bits,))
    most = hlo.constant(Lit.of(8 * scalar.dtype.itemsize, bits))
    (true,) = lower_compare(hlo, "LE", (count, most), bits)
    return true
