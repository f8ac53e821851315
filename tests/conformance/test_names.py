"""Every name of the standard exists, with the standard's parameters."""

from __future__ import annotations

import inspect
import math
from types import ModuleType
from typing import Any

import pytest

import fxad as fx
import fxad.numpy as fnp
from fxad.tracing.array import Array
from tests.conformance.standard import (
    ALL,
    ATTRIBUTES,
    BOOL,
    COMPLEX,
    CONSTANTS,
    FUNCTIONS,
    INSPECTION,
    INTEGER,
    KINDS,
    METHODS,
    NUMERIC,
    REAL_FLOATING,
    SIGNED,
    UNSIGNED,
    Function,
)

P = inspect.Parameter


def namespace(extension: str) -> ModuleType:
    found = getattr(fnp, extension) if extension else fnp
    assert isinstance(found, ModuleType)
    return found


def fits(ours: inspect.Signature, theirs: inspect.Signature) -> None:
    """Every call that the standard allows is possible. Further parameters are optional."""
    mine = ours.parameters
    places = [p for p in mine.values() if p.kind in (P.POSITIONAL_ONLY, P.POSITIONAL_OR_KEYWORD)]
    for k, want in enumerate(theirs.parameters.values()):
        if want.kind is P.VAR_POSITIONAL:
            assert any(p.kind is P.VAR_POSITIONAL for p in mine.values()), want
            continue
        if want.kind in (P.POSITIONAL_ONLY, P.POSITIONAL_OR_KEYWORD):
            assert k < len(places), f"{want} cannot be given by position"
            found = places[k]
        else:
            assert want.name in mine, f"{want} is not there"
            found = mine[want.name]
        if want.kind is not P.POSITIONAL_ONLY:
            assert found.name == want.name
            assert found.kind is not P.POSITIONAL_ONLY, f"{want} cannot be given by name"
        if want.default is not P.empty:
            assert found.default == want.default, (found, want)
            assert type(found.default) is type(want.default)
    taken = [p.name for p in places[: len(theirs.parameters)]] + list(theirs.parameters)
    more = [p for p in mine.values() if p.name not in taken and p.kind not in (P.VAR_POSITIONAL, P.VAR_KEYWORD)]
    assert [p for p in more if p.default is P.empty] == []


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.id)
def test_function(f: Function) -> None:
    module = namespace(f.extension)
    assert f.name in module.__all__
    fits(inspect.signature(getattr(module, f.name)), f.signature)
    assert getattr(module, f.name).__doc__


@pytest.mark.parametrize("name", CONSTANTS)
def test_constant(name: str) -> None:
    ours, want = getattr(fnp, name), CONSTANTS[name]
    if want is None:
        assert ours is None
    else:
        assert type(ours) is float
        assert ours == want or (math.isnan(ours) and math.isnan(want))


@pytest.mark.parametrize("name", ALL)
def test_dtype(name: str) -> None:
    dtype = getattr(fnp, name)
    assert dtype == dtype
    assert fnp.zeros(3, dtype=dtype).dtype == dtype
    assert all(dtype != getattr(fnp, other) for other in ALL if other != name)


def test_version() -> None:
    assert fnp.__array_api_version__ == "2025.12"


# --------------------------------------------------------------------------------------------------------- inspection


def test_inspection_names() -> None:
    info = fnp.__array_namespace_info__()
    for name, parameters in INSPECTION.items():
        fits(inspect.signature(getattr(info, name)), Function("", "", name, parameters, "").signature)


def test_capabilities() -> None:
    assert fnp.__array_namespace_info__().capabilities() == {
        "boolean indexing": True,
        "data-dependent shapes": True,
        "max dimensions": 64,
    }


def test_devices() -> None:
    info = fnp.__array_namespace_info__()
    assert info.devices() == fx.devices()
    assert info.default_device() is fx.devices()[0]
    for device in info.devices():
        assert fnp.zeros(2, device=device).device is device
        assert info.dtypes(device=device) == info.dtypes()
        assert info.default_dtypes(device=device) == info.default_dtypes()


def test_default_dtypes() -> None:
    found = fnp.__array_namespace_info__().default_dtypes()
    assert found == {
        "real floating": fnp.asarray(1.0).dtype,
        "complex floating": fnp.asarray(1j).dtype,
        "integral": fnp.asarray(1).dtype,
        "indexing": fnp.argmax(fnp.zeros(3)).dtype,
    }
    assert found["real floating"] == fnp.zeros(1).dtype == fnp.linspace(0, 1, 3).dtype == fnp.eye(2).dtype
    assert found["integral"] == fnp.arange(3).dtype


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (None, ALL),
        ("bool", BOOL),
        ("signed integer", SIGNED),
        ("unsigned integer", UNSIGNED),
        ("integral", INTEGER),
        ("real floating", REAL_FLOATING),
        ("complex floating", COMPLEX),
        ("numeric", NUMERIC),
        (("bool", "real floating"), (*BOOL, *REAL_FLOATING)),
        ((), ()),
    ],
)
def test_dtypes_of_a_kind(kind: Any, names: tuple[str, ...]) -> None:
    assert fnp.__array_namespace_info__().dtypes(kind=kind) == {name: getattr(fnp, name) for name in names}


def test_inspection_refusals() -> None:
    info = fnp.__array_namespace_info__()
    with pytest.raises(ValueError, match="dtypes: 'float' is not a kind of dtypes"):
        info.dtypes(kind="float")
    with pytest.raises(TypeError, match="default_dtypes: a str is not a device: 'cpu'"):
        info.default_dtypes(device="cpu")  # type: ignore[arg-type]


def test_each_kind_in_the_tables_is_defined() -> None:
    assert {f.kind for f in FUNCTIONS} <= set(KINDS)


# -------------------------------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize("name", METHODS)
def test_method(name: str) -> None:
    fits(inspect.signature(getattr(fnp.ones((2, 2)), name)), Function("", "", name, METHODS[name], "").signature)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attribute(name: str) -> None:
    getattr(fnp.ones((2, 2)), name)
    fx.trace(lambda x: [getattr(x, name), x][1], fx.Spec((2, 2), "float32"))


@pytest.mark.parametrize("version", [None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"])
def test_namespace(version: str | None) -> None:
    assert fnp.ones(2).__array_namespace__(api_version=version) is fnp

    def f(x: Array) -> Array:
        assert x.__array_namespace__(api_version=version) is fnp
        return x

    fx.trace(f, fx.Spec((2,), "float32"))


def test_namespace_of_another_version() -> None:
    with pytest.raises(ValueError, match=r"__array_namespace__: api_version '1999\.01' is not one fxad conforms to"):
        fnp.ones(2).__array_namespace__(api_version="1999.01")
