"""A port that is in use is refused before jaxlib starts its service."""

from __future__ import annotations

import socket

import pytest

import fxad as fx


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0")])
def test_a_port_in_use(family: int, host: str) -> None:
    with socket.socket(family) as other:
        other.bind((host, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises((fx.errors.ExecutionError, fx.errors.ParameterError)) as e:
            fx.distributed.initialize(f"127.0.0.1:{port}", 1, 0)
    if isinstance(e.value, fx.errors.ExecutionError):  # the other error: devices are in use already
        assert e.value.message == (
            f"distributed.initialize: process 0 cannot serve at port {port}: Address already in use"
        )
        assert e.value.remedy == ("choose another port in coordinator_address, or end the program that uses this one")


@pytest.mark.parametrize("port", ["0", "65536", "99999", "-1", "x"])
def test_a_number_that_is_no_port(port: str) -> None:
    with pytest.raises(fx.errors.ParameterError, match="not a host and a port"):
        fx.distributed.initialize(f"127.0.0.1:{port}", 1, 0)
