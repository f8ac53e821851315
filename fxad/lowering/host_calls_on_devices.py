"""Host calls of a program on several devices.

In a map over devices, each index calls the host, as each example does under `vmap`. Outside of maps, all devices
compute the same. There the call is wrapped in a map over all devices: the first device calls the host, and sends the
results to the others. So a call happens once, with the whole operands, as on one device. A check has
no results to send: all devices run it, and the error of the first one is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fxad import dtypes
from fxad.core.builder import Builder, rewrite
from fxad.core.memo import by_value
from fxad.ir import INT32_SCALAR, Atom, Atoms, Aval, Eqn, HigherOrder, Jaxpr, Lit, Source
from fxad.primitives.check import Check, calls_host, prim_calls_host
from fxad.primitives.collectives import AxisIndex, Pmax, Psum
from fxad.primitives.control.call import Call
from fxad.primitives.control.cond import Cond
from fxad.primitives.control.shard_map import ShardMap
from fxad.primitives.elementwise.convert import ConvertElementType
from fxad.primitives.elementwise.logic import EQ
from fxad.primitives.host_call import HostCall
from fxad.primitives.meshes import MeshAxes, mesh_within, with_replica_axis


@by_value
def with_host_calls_on_devices(jaxpr: Jaxpr, devices: int, mesh: MeshAxes = ()) -> Jaxpr:
    """Return the program whose calls of the host, but for checks, happen once for each index of the axes of `mesh`,
    which maps bind."""
    if not calls_host(jaxpr):
        return jaxpr

    def rule(b: Builder, eqn: Eqn, ins: Atoms) -> Sequence[Atom] | None:
        prim = eqn.prim
        if isinstance(prim, Check) and not mesh and devices > 1:
            n = 1 + prim.n_fields
            b(_on_all_devices(_check_body(prim, tuple([a.aval for a in ins[:n]]), eqn.source), devices), *ins[:n])
            return ins[n:]
        if isinstance(prim, HostCall) and devices > prod([size for _, size in mesh]):
            body = _call_on_first(prim, tuple([a.aval for a in ins]), eqn.source, *with_replica_axis(mesh, devices)[-1])
            return b(Call(body) if mesh else _on_all_devices(body, devices), *ins)
        if isinstance(prim, HigherOrder) and prim_calls_host(prim):
            # only a `shard_map` changes the devices on which its body runs
            inside = mesh_within(mesh, prim.mesh) if isinstance(prim, ShardMap) else mesh
            return b(
                prim.with_bodies(tuple([with_host_calls_on_devices(p, devices, inside) for p in prim.bodies])), *ins
            )
        return None

    return rewrite(jaxpr, rule)


def _on_all_devices(body: Jaxpr, devices: int) -> ShardMap:
    """Return a map over all devices, each of which has whole operands and the same results."""
    return ShardMap(body, with_replica_axis((), devices), len(body.ins), (), ((),) * len(body.outs))


def _check_body(check: Check, avals: tuple[Aval, ...], source: Source) -> Jaxpr:
    b = Builder()
    b.source = source
    b(check, *b.inputs(avals))
    return b.build((), check.name)


def _call_on_first(call: HostCall, avals: tuple[Aval, ...], source: Source, axis: str, size: int) -> Jaxpr:
    """Return a call on the first device along an axis. The others add -0, so the sum is the result of the first one.
    Only the sign of a zero part of a complex number may be lost."""
    b = Builder()
    b.source = source
    host_call = b.build(b(call, *b.inputs(avals)), call.name)
    b = Builder()
    b.inputs(avals)
    zeros = b.build([Lit.of(-0.0 if a.inexact else 0, a) for a in host_call.out_avals], "wait")
    b = Builder()
    args = b.inputs(avals)
    is_first = b.one(ConvertElementType(dtypes.int32), b.one(EQ, b.one(AxisIndex(axis, size)), Lit.of(0, INT32_SCALAR)))
    values = b(Cond((zeros, host_call)), is_first, *args)
    outs = [b.one((Pmax if v.aval.dtype == dtypes.bool_ else Psum)((axis,), (size,)), v) for v in values]
    return b.build(outs, call.name)
