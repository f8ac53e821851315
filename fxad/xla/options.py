"""Compile options: `CompileOptions`, which users give, and XLA's options for a program on its devices."""

from __future__ import annotations

from typing import Final, final

import numpy as np

from fxad.core.dataclasses import dataclass
from fxad.errors import ArgumentError, ParameterError, described, shown
from fxad.lower import LoweredModule, ModuleSharding
from fxad.lowering.jaxlib import _jax, xla_client
from fxad.operations.arguments import is_unicode
from fxad.xla.client import Device
from fxad.xla.compat import PRODUCTS_ALONE
from fxad.xla.cuda import compiler_flags


@final
@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Compile options, as a value: part of the key of the cache.

    `donate` are indices of operands whose memory results of their type reuse; the call deletes the caller's buffers.
    `flags` are XLA's flags, as in XLA_FLAGS but for this program only: `(("xla_cpu_enable_fast_math", True),)`.

    Rule:   lists become tuples. Flags of 1, 1.0 and True differ, as for XLA.
    Raises: ParameterError for a value of another type.
    """

    donate: tuple[int, ...] = ()
    optimization_level: int | None = None
    flags: tuple[tuple[str, str | bool | int | float], ...] = ()

    def __post_init__(self) -> None:
        donate, level = self.donate, self.optimization_level
        if not isinstance(donate, tuple | list) or not all([_is_int(k) for k in donate]):
            raise ParameterError(
                f"CompileOptions: donate is {shown(donate)}, not a sequence of ints", remedy="number operands from 0"
            )
        if level is not None and not (_is_int(level) and abs(level) < 2**31):
            problem = "more than 32 bits" if _is_int(level) else "neither an int nor None"
            raise ParameterError(
                f"CompileOptions: optimization_level is {shown(level)}, {problem}", remedy="XLA's levels are 0 to 3"
            )
        if not isinstance(self.flags, tuple | list) or not all([_is_flag(f) for f in self.flags]):
            raise ParameterError(
                f"CompileOptions: flags is {shown(self.flags)}, not a sequence of pairs of a name and a value",
                remedy='as in flags=(("xla_cpu_enable_fast_math", True),); a value is a str, a bool, an int or a float',
            )
        no_text = [text for flag in self.flags for text in flag if isinstance(text, str) and not is_unicode(text)]
        if no_text:
            raise ParameterError(
                f"CompileOptions: flags has {shown(no_text[0])}, which is no text of Unicode",
                remedy="a surrogate alone is no character",
            )
        object.__setattr__(self, "donate", tuple(donate))
        object.__setattr__(self, "flags", tuple([(name, value) for name, value in self.flags]))

    def _key(self) -> tuple[object, ...]:
        # by the repr: 1 == True, 0.0 == -0.0, and nan != nan
        return self.donate, self.optimization_level, repr(self.flags)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, CompileOptions) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_flag(flag: object) -> bool:
    """Return True for a pair of the name of a flag and its value."""
    if not isinstance(flag, tuple | list) or len(flag) != 2:
        return False
    name, value = flag
    return isinstance(name, str) and type(value) in (str, bool, int, float)


DEFAULT_OPTIONS: Final = CompileOptions()


def check_options(what: str, options: object) -> None:
    """Raise ArgumentError for a value that is no `CompileOptions`."""
    if not isinstance(options, CompileOptions):
        raise ArgumentError(
            f"{what}: {described(options)} is not a CompileOptions: {shown(options)}",
            remedy="leave it out, or give fx.CompileOptions(...)",
        )


def options_of_one_device(device: Device) -> _jax.CompileOptions:
    """XLA's default options for a program on one device."""
    options = _jax.CompileOptions()
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
    return options


def options_for(
    devices: tuple[Device, ...], sharding: ModuleSharding | None, calls_host: bool = False
) -> _jax.CompileOptions:
    """XLA's default options for the devices of a program. Shardy and XLA's partitioner divide a program on several, and
    choose the shardings of results that have none. `calls_host`: the module has one more result."""
    if sharding is None:
        return options_of_one_device(devices[0])
    options = _jax.CompileOptions()
    build = options.executable_build_options
    options.num_partitions = build.num_partitions = len(devices)
    options.num_replicas = build.num_replicas = 1
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    is_left_to_xla = [*[where is None for where in sharding.outs], *[False] * calls_host]
    build.allow_spmd_sharding_propagation_to_output = is_left_to_xla or [False]
    assignment = xla_client.DeviceAssignment.create(np.array([[d.id for d in devices]]))
    options.device_assignment = build.device_assignment = assignment
    return options


def xla_options(options: CompileOptions, devices: tuple[Device, ...], lowered: LoweredModule) -> _jax.CompileOptions:
    """Return the options in XLA's form. The module itself contains the donation."""
    in_xla = options_for(devices, lowered.sharding, lowered.calls_host)
    if options.optimization_level is not None:
        in_xla.executable_build_options.optimization_level = options.optimization_level
    given_names = {name for name, _ in options.flags}
    flags: list[tuple[str, str | bool | int | float]] = []
    if devices[0].platform == "cuda":
        flags += compiler_flags()
    elif '"stablehlo.dot_general"' in lowered.body:
        flags += [flag for flag in PRODUCTS_ALONE if flag[0] not in given_names]
    flags += options.flags
    if flags:
        in_xla.env_option_overrides = flags
    return in_xla
