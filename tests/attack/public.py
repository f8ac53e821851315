"""Every public function, with arguments that it accepts. The laws of arguments replace them one by one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

import fxad as fx
import fxad.lax as lax
import fxad.nn as nn
import fxad.nn.initializers as initializers
import fxad.numpy as fnp
import fxad.numpy.fft as fft
import fxad.numpy.linalg as linalg
import fxad.random as random
import fxad.scipy.cluster.vq as vector_quantization
import fxad.scipy.fft as cosine
import fxad.scipy.linalg as scipy_linalg
import fxad.scipy.ndimage as ndimage
import fxad.scipy.optimize as optimize
import fxad.scipy.signal as signal
import fxad.scipy.special as special
from fxad.errors import FxadError

P = inspect.Parameter
SCIPY: Final = (special, scipy_linalg, signal, cosine, ndimage, optimize, vector_quantization)
MODULES: Final[tuple[ModuleType, ...]] = (lax, lax.linalg, fnp, fft, linalg, nn, initializers, random, *SCIPY)

X = np.arange(1, 10, dtype=np.float32).reshape(3, 3) + np.eye(3, dtype=np.float32)
V = np.array([1, 2, 3], np.float32)
I = np.array([2, 0, 1], np.int32)
B = np.array([True, False, True])
IMAGE = np.ones((1, 1, 4, 4), np.float32)
KEY = random.key(0)
GATHER = lax.GatherDimensionNumbers((1,), (0,), (0,))
SCATTER = lax.ScatterDimensionNumbers((1,), (0,), (0,))


class Function(NamedTuple):
    """A public function, its parameters, and arguments that it accepts."""

    module: str
    name: str
    call: Callable[..., Any]
    parameters: Mapping[str, inspect.Parameter]
    given: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    def run(self, /, **changed: object) -> Any:
        """Calls the function, with some arguments replaced."""
        values, args, named = {**self.given, **changed}, list[object](), dict[str, object]()
        by_place = True
        for p in self.parameters.values():
            if p.kind is P.VAR_POSITIONAL:
                args += list(values.get(p.name, ()))
            elif p.kind is P.VAR_KEYWORD:
                continue
            elif p.name not in values:
                by_place = False
            elif p.kind is P.POSITIONAL_ONLY or (p.kind is P.POSITIONAL_OR_KEYWORD and by_place):
                args.append(values[p.name])
            else:
                named[p.name] = values[p.name]
        return self.call(*args, **named)


# arguments by the name of the parameter, then by its annotation
NAMED: Final[Mapping[str, object]] = MappingProxyType(
    {
        "key": KEY, "seed": 0, "axis": 0, "axes": (0, 1), "shape": (3, 3), "dimensions": (0,), "arrays": [X, X],
        "fn": fnp.add, "f": fnp.sin, "func": fnp.sin, "M": 4, "n": 2, "k": 1, "N": 2, "m": 2, "num": 3,
        "dtype": "float32", "new_dtype": "int32", "index_dtype": "int32", "type": "float32", "kind": "integral",
        "decimals": 1, "p": np.float32(0.5), "axis1": 0, "axis2": 1, "q": 0.5, "init_val": X, "init": X,
        "indices": I, "kth": 1, "indices_or_sections": 3, "obj": 1, "window_strides": (1, 1), "padding": "VALID",
        "window_dimensions": (2, 2), "dimension_numbers": None, "x0": V, "initial_guess": V, "slice_sizes": (1, 3),
        "mode": "clip", "repeats": 2, "fill_value": 1, "data": 3, "shift": 1, "d": 2, "window_shape": (2, 2),
        "scale": 0.5,
    }
)  # fmt: skip
TYPED: Final[Mapping[str, object]] = MappingProxyType(
    {
        "Axes": 0, "int": 1, "bool": True, "float": 0.5, "Sequence[int]": (0, 1), "int | None": 1, "Parts": 3,
        "int | Sequence[int]": 1, "object": X, "str": "VALID", "Any": V, "T": X, "ScatterDimensionNumbers": SCATTER,
        "GatherDimensionNumbers": GATHER, "Sequence[int] | None": (1, 1),
    }
)  # fmt: skip
# arrays of the types that functions take; the first one that fits all parameters is used
KINDS: Final = (
    X,
    I,
    V,
    np.eye(3, dtype=np.int32),
    X.astype(np.complex64),
    X.astype(np.uint8),
    B,
    np.ones((2, 3, 2, 2)),
)
ADDED: Final = {"computation": lax.add}
IMAGES: Final = {"lhs": IMAGE, "rhs": np.ones((1, 1, 2, 2), np.float32), "strides": (1, 1), "filter_shape": (2, 2),
                 "lhs_dilation": (1, 1), "rhs_dilation": (1, 1)}  # fmt: skip
SCATTERED: Final = {
    "operand": X,
    "scatter_indices": I[:, None],
    "updates": X,
    "dimension_numbers": SCATTER,
    "mode": "drop",
}
FOUR: Final = np.ones((2, 3, 2, 4), np.float32)


def _step(c: Any, x: Any) -> Any:
    return c * 2, c


def _same(f: Any, x: Any) -> Any:
    return x


def _apply(f: Any, x: Any) -> Any:
    return f(x)


def _first(x: Any, *rest: Any) -> Any:
    return x


POOLED: Final = {"inputs": np.ones((2, 4, 4, 1), np.float32)}
SPD: Final = {"A": X @ X.T + 9 * np.eye(3, dtype=np.float32), "b": V}
GROUPS: Final = {"rhs": np.ones((2, 3, 4), np.float32), "group_sizes": np.array([1, 2], np.int32)}
PICK: Final = {"operand": np.ones((4, 4), np.float32), "select": "ge"}
SPARSE: Final = fx.Sparse(np.ones(3, np.float32), fx.Pattern.from_scipy(np.eye(3)))
OWN: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "lax.associative_scan": {"elems": X},
        "lax.bicgstab": SPD, "lax.cg": SPD, "lax.gmres": SPD,
        "lax.broadcast_in_dim": {"shape": (2, 3, 3), "broadcast_dimensions": (1, 2)},
        "lax.checkpoint_name": {"name": "h"},
        "lax.checkpointed_scan": {"f": _step, "length": 3, "budget": 3},
        "lax.collapse": {"start_dimension": 0},
        "lax.concatenate": {"operands": [X, X]},
        "lax.cond": {"pred": np.bool_(True), "true_fun": fnp.sin, "false_fun": fnp.cos, "operands": (X,)},
        "lax.conv": IMAGES, "lax.conv_general_dilated": IMAGES, "lax.conv_general_dilated_patches": IMAGES,
        "lax.conv_transpose": {**IMAGES, "dimension_numbers": ("NCHW", "OIHW", "NCHW")},
        "lax.conv_with_general_padding": IMAGES,
        "lax.conv_dimension_numbers": {"lhs_shape": (1, 1, 4, 4), "rhs_shape": (1, 1, 2, 2)},
        "lax.custom_fixed_point": {"f": lambda x: x / 2, "solve": _same},
        "lax.custom_linear_solve": {"matvec": lambda x: 2 * x, "solve": _same},
        "lax.custom_minimize": {"f": lambda x: (x * x).sum(), "solve": _same},
        "lax.factorize": {"matrix": SPARSE},
        "lax.sparse_solve": {"matrix": SPARSE, "b": np.ones(3, np.float32)},
        "lax.newton": {"f": lambda x: x * x - 2, "x0": np.ones(3, np.float32), "jac": lambda x: fnp.diag(2 * x)},
        "lax.levenberg_marquardt": {
            "f": lambda x: x * x - 2, "x0": np.ones(3, np.float32), "jac": lambda x: fnp.diag(2 * x),
        },
        "lax.custom_root": {"solve": _same, "tangent_solve": _same},
        "lax.ragged_dot": GROUPS,
        "lax.ragged_dot_general": {
            **GROUPS,
            "ragged_dot_dimension_numbers": lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,)),
        },
        "lax.dot_general": {"dimension_numbers": (((1,), (0,)), ((), ()))},
        "lax.dynamic_index_in_dim": {"index": 1},
        "lax.dynamic_slice": {"start_indices": (0, 1), "slice_sizes": (2, 2)},
        "lax.dynamic_slice_in_dim": {"start_index": 1},
        "lax.dynamic_update_index_in_dim": {"update": V, "index": 1},
        "lax.dynamic_update_slice": {"update": np.ones((2, 2), np.float32), "start_indices": (0, 1)},
        "lax.dynamic_update_slice_in_dim": {"update": X[:1], "start_index": 1},
        "lax.fft": {"fft_type": "fft", "fft_lengths": (3,), "x": X.astype(np.complex64)},
        "lax.fixed_point_iteration": {"f": lambda x: x / 2},
        "lax.fori_loop": {"lower": 0, "upper": 3, "body_fun": lambda i, c: c * 2},
        "lax.full_like": {"shape": (2,)},
        "lax.gather": {"start_indices": I[:, None], "dimension_numbers": GATHER},
        "lax.linear_call": {"fun": lambda r, x: 2 * x, "fun_transpose": lambda r, x: 2 * x, "residual_args": 0,
                            "linear_args": X},
        "lax.map": {"xs": X},
        "lax.pad": {"padding_value": np.float32(0), "padding_config": ((0, 1, 0), (1, 0, 0))},
        "lax.padtype_to_pads": {"in_shape": (4, 4), "window_shape": (2, 2)},
        "lax.platform_dependent": {"args": (X,), "default": fnp.sin},
        "lax.reduce": {"operands": X, "init_values": np.float32(0), **ADDED},
        "lax.reduce_window": {"operand": X, "init_value": np.float32(0), **ADDED},
        "lax.reshape": {"new_sizes": (9, 1)},
        "lax.scan": {"f": _step, "length": 3},
        "lax.scatter": SCATTERED, "lax.scatter_add": SCATTERED, "lax.scatter_max": SCATTERED,
        "lax.scatter_min": SCATTERED, "lax.scatter_mul": SCATTERED, "lax.scatter_sub": SCATTERED,
        "lax.scatter_apply": {**SCATTERED, "operand": fnp.asarray(X), "update_shape": (3, 3)},
        "lax.select": {"pred": B, "on_true": V, "on_false": V},
        "lax.select_and_gather_add": {**PICK, "values": PICK["operand"]},
        "lax.select_and_scatter_add": {**PICK, "source": X},
        "lax.select_n": {"which": B, "cases": (V, V)},
        "lax.slice": {"start_indices": (0, 1), "limit_indices": (2, 3)},
        "lax.slice_in_dim": {"start_index": 0, "limit_index": 2},
        "lax.sort": {"operand": X},
        "lax.split": {"sizes": (1, 2)},
        "lax.squeeze": {"array": X[None]},
        "lax.stack": {"operands": (X, X), "axis": 0},
        "lax.switch": {"index": np.int32(1), "branches": [fnp.sin, fnp.cos], "operands": (X,)},
        "lax.tile": {"reps": (1, 2)},
        "lax.transpose": {"permutation": (1, 0)},
        "lax.while_loop": {"cond_fun": lambda x: x.sum() < 9, "body_fun": lambda x: x * 2, "init_val": V,
                           "max_steps": 5},
        "numpy.apply_along_axis": {"func1d": fnp.cumsum, "axis": 0, "arr": X},
        "numpy.apply_over_axes": {"func": fnp.sum, "a": X, "axes": (0,)},
        "numpy.arange": {"start": 0, "stop": 4, "dtype": None},
        "numpy.argwhere": {"size": 4},
        "numpy.bincount": {"length": 4},
        "numpy.broadcast_arrays": {"arrays": (X, V)},
        "numpy.broadcast_shapes": {"given": ((2, 1), (3,))},
        "numpy.broadcast_to": {"array": V, "shape": (3, 3)},
        "numpy.can_cast": {"from_": "int32", "to": "float64"},
        "numpy.choose": {"a": I, "choices": [V, V, V]},
        "numpy.compress": {"condition": B, "axis": 0, "size": 2},
        "numpy.concat": {"axis": 0},
        "numpy.convolve": {"mode": "full"}, "numpy.correlate": {"mode": "valid"},
        "numpy.cumulative_prod": {"axis": 0}, "numpy.cumulative_sum": {"axis": 0},
        "numpy.delete": {"axis": 0},
        "numpy.digitize": {"bins": V},
        "numpy.dsplit": {"ary": np.ones((3, 3, 3))},
        "numpy.einsum": {"subscripts": "ij,jk", "operands": (X, X)},
        "numpy.einsum_path": {"subscripts": "ij,jk", "operands": (X, X)},
        "numpy.expand_dims": {"axis": 0},
        "numpy.extract": {"condition": X > 3, "size": 3},
        "numpy.fill_diagonal": {"val": np.float32(1)},
        "numpy.flatnonzero": {"size": 3},
        "numpy.from_dlpack": {"x": X},
        "numpy.frombuffer": {"buffer": X.tobytes(), "dtype": "float32"},
        "numpy.fromfunction": {"function": lambda i, j: i + j},
        "numpy.fromiter": {"iterable": [1, 2]},
        "numpy.fromstring": {"string": "1 2", "sep": " "},
        "numpy.gradient": {"f": X, "axis": 0},
        "numpy.histogram2d": {"x": V, "y": V, "bins": 3}, "numpy.histogramdd": {"sample": X, "bins": 3},
        "numpy.iinfo": {"type": "int32"},
        "numpy.indices": {"dimensions": (2, 2)},
        "numpy.insert": {"values": 1.0},
        "numpy.intersect1d": {"size": 3},
        "numpy.interp": {"x": X, "xp": V, "fp": V},
        "numpy.isscalar": {"element": 1}, "numpy.iterable": {"y": X},
        "numpy.issubdtype": {"arg1": "int32", "arg2": "int32"},
        "numpy.kaiser": {"beta": 2.0},
        "numpy.ldexp": {"x1": V, "x2": I},
        "numpy.lexsort": {"keys": (V, V)},
        "numpy.linspace": {"start": 0.0, "stop": 1.0, "num": 3},
        "numpy.mask_indices": {"n": 3, "mask_func": lambda m, k: np.triu(np.ones((3, 3)), k)},
        "numpy.meshgrid": {"arrays": (V, V)},
        "numpy.moveaxis": {"source": 0, "destination": 1},
        "numpy.nonzero": {"size": 3},
        "numpy.pad": {"pad_width": 1, "mode": "constant"},
        "numpy.piecewise": {"x": V, "condlist": [V > 1], "funclist": [fnp.sin]},
        "numpy.polyfit": {"x": V, "y": V, "deg": 1},
        "numpy.promote_types": {"a": "int8", "b": "float32"},
        "numpy.put": {"a": V, "v": V},
        "numpy.put_along_axis": {"arr": V, "values": V},
        "numpy.ravel_multi_index": {"multi_index": (I, I), "dims": (3, 3)},
        "numpy.repeat": {"axis": 0, "total_repeat_length": 6},
        "numpy.reshape": {"shape": (9, 1)},
        "numpy.resize": {"new_shape": (2, 2)},
        "numpy.result_type": {"arrays_and_dtypes": (X, "float64")},
        "numpy.roll": {"axis": 0},
        "numpy.searchsorted": {"a": V, "v": V},
        "numpy.select": {"condlist": [B], "choicelist": [V]},
        "numpy.setdiff1d": {"size": 3}, "numpy.setxor1d": {"size": 3}, "numpy.union1d": {"size": 3},
        "numpy.squeeze": {"a": X[None], "axis": 0},
        "numpy.take": {"axis": 0},
        "numpy.take_along_axis": {"arr": V},
        "numpy.tile": {"reps": (2, 1)},
        "numpy.transpose": {"axes": (1, 0)}, "numpy.permute_dims": {"axes": (1, 0)},
        "numpy.trim_zeros": {"filt": V},
        "numpy.unpackbits": {"count": 8},
        "numpy.unique": {"size": 3},
        "numpy.unravel_index": {"indices": I, "shape": (3, 3)},
        "numpy.unwrap": {"p": V},
        "numpy.vectorize": {"pyfunc": fnp.sin},
        "numpy.where": {"condition": X > 3, "x1": X, "x2": X},
        "numpy.linalg.block_diag": {"arrays": (X, X)},
        "numpy.linalg.cho_solve": {"c_and_lower": (X, True), "b": V},
        "numpy.linalg.cross": {"axis": -1}, "numpy.linalg.vecdot": {"axis": -1},
        "numpy.linalg.lu_solve": {"lu_and_piv": (X, I), "b": V},
        "numpy.linalg.tensorinv": {"a": np.ones((3, 3)), "ind": 1},
        "numpy.linalg.tensorsolve": {"a": X, "b": V},
        **{key: {"m": X} for key in ("numpy.fliplr", "numpy.flipud", "numpy.rot90", "numpy.tril", "numpy.triu")},
        "numpy.linalg.matrix_rank": {"M": X},
        **{key: {"tup": [X, X]} for key in [f"numpy.{k}" for k in ("dstack", "hstack", "vstack", "column_stack")]},
        "numpy.linalg.norm": {"axis": 0},
        "nn.avg_pool": POOLED, "nn.max_pool": POOLED, "nn.min_pool": POOLED,
        "nn.pool": {**POOLED, "init": np.float32(0), "reduce_fn": lax.add},
        "nn.batch_norm": {"stats": nn.BatchStats.init(3), "training": True},
        "nn.dropout": {"rate": 0.5, "key": KEY}, "nn.group_norm": {"num_groups": 1},
        "nn.dot_product_attention": {"query": FOUR, "key": FOUR, "value": FOUR},
        "nn.glu": {"x": np.ones((4, 3), np.float32), "axis": 0},
        "nn.one_hot": {"x": I, "num_classes": 3},
        "nn.initializers.variance_scaling": {"mode": "fan_in", "distribution": "normal"},
        "lax.linalg.householder_product": {"taus": V},
        "lax.linalg.lu_pivots_to_permutation": {"pivots": I, "permutation_size": 3},
        "lax.linalg.ormqr": {"taus": V},
        "lax.linalg.tridiagonal_solve": {"dl": V, "d": V, "du": V, "b": V[:, None]},
        "scipy.linalg.block_diag": {"arrays": (X, X)},
        "scipy.linalg.cho_solve": {"c_and_lower": (X, True), "b": V},
        "scipy.linalg.eigh_tridiagonal": {"d": V, "e": V[:2]},
        "scipy.linalg.leslie": {"f": V, "s": V[:2]},
        "scipy.linalg.lu_solve": {"lu_and_piv": (X, I), "b": V},
        "scipy.signal.detrend": {"data": V, "type": "linear"},
        "scipy.ndimage.map_coordinates": {"coordinates": [V, V], "order": 1},
        "scipy.optimize.minimize": {"fun": lambda x: (x * x).sum(), "x0": V, "method": "BFGS"},
        "random.categorical": {"logits": X, "axis": -1},
        "random.bernoulli": {"mode": "low"},
        "random.choice": {"a": V, "p": None},
        "random.fold_in": {"data": 3},
        "random.key_data": {"keys": KEY},
        "random.multinomial": {"n": 2, "p": V / 6},
        "random.multivariate_normal": {"mean": V, "cov": np.eye(3, dtype=np.float32)},
        "random.randint": {"minval": 0, "maxval": 5, "dtype": "int32"},
        "random.triangular": {"left": 0.0, "mode": 0.5, "right": 1.0},
        "random.weibull_min": {"scale": 1.0, "concentration": 1.0},
        "random.key_impl": {"keys": np.zeros(2, np.uint32)},
        "random.wrap_key_data": {"key_bits_array": np.zeros(2, np.uint32)},
    }
)  # fmt: skip
# excluded: functions that read or write files; collectives, which need a mapped axis
OUTSIDE: Final = frozenset({"numpy.fromfile", "numpy.load", "numpy.save", "numpy.savez"})


def _value(own: Mapping[str, Any], p: inspect.Parameter, array: object) -> object:
    if p.name in own:
        return own[p.name]
    if p.default is not P.empty:
        return p.default
    if p.name in NAMED:
        return NAMED[p.name]
    return TYPED.get(str(p.annotation), array)


def runs(f: Function) -> bool:
    """Returns True if a function accepts its arguments."""
    try:
        fx.trace(lambda: (f.run(), 0)[1])
    except FxadError:
        return False
    return True


def functions(module: ModuleType) -> list[Function]:
    """Returns every public function of a module, with arguments that it accepts."""
    prefix, found = module.__name__.removeprefix("fxad."), list[Function]()
    for name in sorted(getattr(module, "__all__", None) or dir(module)):
        call, full = getattr(module, name), f"{prefix}.{name}"
        home = "fxad" if hasattr(module, "__all__") else module.__name__  # else it shows its imports
        function = callable(call) and not isinstance(call, type) and getattr(call, "__module__", "").startswith(home)
        if name.startswith("_") or not function or full in OUTSIDE or call.__module__ == "fxad.lax.parallel":
            continue
        parameters, own = inspect.signature(call).parameters, OWN.get(full, {})
        takes = [p for p in parameters.values() if p.kind is not P.VAR_KEYWORD]
        takes = [p for p in takes if p.kind is not P.VAR_POSITIONAL or p.name in own]
        tried = (Function(prefix, name, call, parameters, {p.name: _value(own, p, a) for p in takes}) for a in KINDS)
        f = next(filter(runs, tried), None)
        assert f is not None, f"{full}: no arguments of it are known: give some in tests/attack/public.py"
        found.append(f)
    return found
