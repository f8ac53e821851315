"""Names of JAX, NumPy and PyTorch that fxad does not have, and the remedy that the AttributeError gives for each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_FLAG: Final = "it is a flag of the process, and no flag changes what a program means"
_X64: Final = "64-bit types are always there: give dtype='float64' where arrays are made, or NumPy arrays of float64"
_INTERNAL: Final = "it belongs to JAX's own machinery"
_HOSTS: Final = "process_index() and process_count(): fxad.distributed connects several processes"
_SHARDING: Final = "shard_map(f, mesh, in_specs, out_specs) runs a function on the devices of a mesh"
_RESHARD: Final = "device_put(x, sharding) moves an array, with_sharding_constraint divides a value in a program"
_REFS: Final = "arrays are immutable: return new values, x.at[i].set(y)"
_SHAPES: Final = "eval_shape(f, ...) gives the shapes of results"
_PRIMITIVE: Final = "primitives are classes: fxad.primitives.ALL lists them"
_ALGORITHM: Final = "the precision of products is precision= and preferred_element_type="
_NARROW: Final = "dtypes have at least 8 bits; fxad.dtypes.ALL lists them"
_RAGGED: Final = "mask(f, in_shapes=...) computes with ragged sizes"

# By module of JAX: names, and what to write instead of each.
_BY_MODULE: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "": {
            "Shard": "fxad.sharding.Shard",
            "Ref array_ref empty_ref free_ref freeze new_ref ref": _REFS,
            "allow_f16_reductions array_garbage_collection_guard auto_pcast check_tracer_leaks checking_leaks "
            "debug_infs debug_key_reuse default_prng_impl enable_checks enable_custom_prng legacy_prng_key "
            "log_compiles no_execution no_tracing numpy_dtype_promotion numpy_rank_promotion softmax_custom_jvp "
            "thread_guard threefry_partitionable transfer_guard transfer_guard_device_to_device "
            "transfer_guard_device_to_host transfer_guard_host_to_device jax2tf_associative_scan_reductions "
            "remove_size_one_mesh_axis_from_type": _FLAG,
            "config": "no flag changes what a program means: dtype='float64' where arrays are made replaces "
            "jax_enable_x64, explain_nan(f, *args) jax_debug_nans",
            "enable_x64": _X64,
            "debug_nans": "explain_nan(f, *args) finds the operation that makes the first nan",
            "default_matmul_precision": "contractions take precision=: fnp.matmul(x, y, precision='highest')",
            "default_device": "device_put(x, device) puts arguments on a device, and computations follow",
            "explain_cache_misses": "cache.explain() says why a program was compiled",
            "clear_caches": "cache.clear()",
            "live_arrays": "cache.stats() has the bytes that programs hold",
            "process_indices host_count host_id host_ids": _HOSTS,
            "copy_to_host_async": "device_put(x, sharding) divides an array, device_get(x) brings it back",
            "reshard": _RESHARD,
            "CompilerEffortLevel": "CompileOptions(optimization_level=...)",
            "Inline": _INTERNAL,
            "get_abstract_mesh get_mesh use_abstract_mesh": "fxad.sharding.get_mesh() is the mesh of `with mesh:`",
            "smap": _SHARDING,
            "export": "lower(program).export() gives bytes, load_exported reads them",
            "ffi": "pure_callback calls a function of the host",
            "dlpack": "fxad.numpy.from_dlpack(x), and x.__dlpack__()",
            "profiler": "profile(...)",
            "fwd_and_bwd": "linearize(program) gives the primal and the linear program",
            "ad api_util ds interpreters lib memory make_user_context monitoring print_environment_info "
            "version": _INTERNAL,
        },
        "numpy": {
            "ComplexWarning character flexible object_": "arrays hold numbers and bools only",
            "complex_": "fnp.complex64 or fnp.complex128",
            "float_": "fnp.float32 or fnp.float64",
            "int_": "fnp.int32 or fnp.int64",
            "uint": "fnp.uint32 or fnp.uint64",
            "float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e8m0fnu int1 int2 int4 uint1 "
            "uint2 uint4": _NARROW,
            "frompyfunc ufunc": "fnp.vectorize(f) maps a function over elements",
            "get_printoptions printoptions set_printoptions": "arrays print as NumPy's: use numpy.printoptions",
            "minmax": "fnp.min and fnp.max",
        },
        "lax": {
            "AccuracyMode Tolerance": _ALGORITHM,
            "ConvGeneralDilatedDimensionNumbers DotDimensionNumbers GatherScatterMode RandomAlgorithm": (
                "give texts and tuples: they are types of arguments"
            ),
            "ragged_all_to_all": _RAGGED,
            "after_all create_token": "effects are ordered by io_callback(ordered=True)",
            "approx_max_k approx_min_k": "lax.top_k is exact",
            "broadcast_like broadcast_to_rank dtype index_take": (
                "fxad.numpy has broadcast_to, reshape, result_type and take"
            ),
            "composite": "jit(f) is a call of its own in a program",
            "conv_general_dilated_local": "conv_general_dilated_patches, then einsum",
            "conv_general_permutations conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple "
            "reduce_window_shape_tuple": _SHAPES,
            "dce_sink stage": _INTERNAL,
            "one_minus_square": "(1 - x) * (1 + x)",
            "polynomial": "fnp.polyval, with the highest degree first",
            "psum_scatter_start": "lax.psum_scatter",
            "precv psend": "lax.ppermute, lax.all_gather and lax.all_to_all move values",
            "rng_bit_generator rng_uniform": "random.bits and random.uniform, from a key",
            "scaled_dot": "scale the operands, then lax.dot_general",
            "shape_as_value": "x.shape",
        },
        "lax.linalg": {
            "EigImplementation EighImplementation SvdAlgorithm": "there is one algorithm for each decomposition",
            "cholesky_update": "cholesky(a + outer(x, conj(x)))",
            "hessenberg": "fxad.scipy.linalg.hessenberg",
            "qdwh": "the polar decomposition is u @ vh of svd",
            "symmetric_product": "c + alpha * a @ a.T",
        },
        "core": {
            "Tracer Trace": "a tracer is a fxad.Array too: isinstance(x, fxad.Array)",
            "AbstractValue ShapedArray": "fxad.Spec(shape, dtype), and fxad.ir.Aval in programs",
            "Atom ParamDict Value": "fxad.ir has the parts of programs: Var, Lit, Eqn, Jaxpr",
            "ensure_compile_time_eval": "fxad.ensure_compile_time_eval",
            "eval_context": "computations outside of traced functions run at once",
            "eval_jaxpr": "call the program, or interpret(program, *args)",
            "max_dim min_dim": "fxad.core.sizes.maximum and minimum, of sizes",
        },
        "sharding": {
            "AbstractMesh AbstractDevice use_abstract_mesh": "shard_map takes names and sizes: {'i': 8}",
            "ManualAxisType UnreducedKind no_collectives": (
                "shard_map finds out which values are the same on all devices"
            ),
            "auto_axes explicit_axes": "with_sharding_constraint divides a value, and XLA decides about the others",
            "get_abstract_mesh": "get_mesh() is the mesh of `with mesh:`",
            "make_single_device_sharding": "SingleDeviceSharding(device)",
            "reshard": _RESHARD,
            "GSPMDSharding PmapSharding PositionalSharding": "NamedSharding(mesh, PartitionSpec(...))",
        },
        "debug": {
            "inspect_array_sharding": "print(x.sharding) of a result; with_sharding_constraint decides in a program",
            "log": "debug.print",
            "DebugEffect OrderedDebugEffect": _INTERNAL,
        },
        "experimental": {
            "checkify": "error_if(x, x < 0, 'negative: {}', x) raises in the compiled program",
            "disable_x64 enable_x64": _X64,
            "pallas": "XLA alone compiles",
            "sparse": "arrays are dense; scipy.sparse.linalg takes functions in place of matrices",
        },
        "random": {"key_dtype Key": "keys are uint32 arrays"},
        "nn": {
            "get_scaled_dot_general_config scaled_dot_general scaled_matmul": (
                "scale the operands, then lax.dot_general"
            ),
        },
    }
)
# The same for names of NumPy, of PyTorch, and of JAX in earlier versions.
_ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "": {
            "tree_map tree_multimap tree_leaves tree_flatten tree_unflatten tree_structure tree_transpose": (
                "fxad.tree has map, leaves, flatten, unflatten, ..."
            ),
            "jax": "fxad itself has its names: fx.grad, fx.jit, fx.numpy, fx.lax",
            "jnp np": "import fxad.numpy as fnp",
        },
        "numpy": {
            "random": "fxad.random.normal(fxad.random.key(seed), shape); keys are values",
            "tensor": "fnp.asarray",
            "cat": "fnp.concatenate",
            "asnumpy to_numpy": "numpy.asarray(x)",
        },
        "random": {
            "seed default_rng RandomState manual_seed": "a sampler has no state: make a key, random.key(seed)",
            "rand random random_sample": "random.uniform(key, shape)",
            "randn": "random.normal(key, shape)",
            "shuffle": "random.permutation(key, x)",
        },
        "nn": {
            "Module Linear Dense Conv Conv1d Conv2d Embed Embedding Sequential LayerNorm BatchNorm Dropout": (
                "a layer is a function of its parameters, such as x @ params.w + params.b, and parameters are any "
                "pytree, such as a class with @fxad.tree.dataclass; fxad.interop.jax.from_jax takes models of flax and "
                "equinox"
            ),
        },
    }
)

# Modules whose names are often looked for in another one, if they are imported.
_MODULES: Final = (
    "fxad",
    "fxad.lax",
    "fxad.numpy",
    "fxad.nn",
    "fxad.random",
    "fxad.numpy.linalg",
    "fxad.scipy.special",
)


def _by_path(table: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    return MappingProxyType(
        {
            ".".join(["fxad", *([module] if module else []), name]): text
            for module, names in table.items()
            for group, text in names.items()
            for name in group.split()
        }
    )


_OF_JAX: Final = _by_path(_BY_MODULE)
_OF_OTHERS: Final = _by_path(_ELSEWHERE)


def absent(package: str, name: str) -> str:
    """Return the message of the AttributeError for a name that a package does not have."""
    message = f"module {package!r} has no attribute {name!r}"
    instead = _OF_JAX.get(f"{package}.{name}") or _OF_OTHERS.get(f"{package}.{name}")
    if instead is None and package in ("fxad.lax", "fxad.lax.linalg", "fxad.random") and name.endswith("_p"):
        instead = _PRIMITIVE
    instead = instead or _in_another_module(name)
    return f"{message}: {instead}" if instead else message


def _in_another_module(name: str) -> str | None:
    """Return the path of a public name by which it is written elsewhere: `vmap` is no function of `fxad.lax`."""
    for module in _MODULES:
        if name in getattr(sys.modules.get(module), "__all__", ()):
            return f"{module}.{name}"
    return None


# Attributes of JAX's ClosedJaxpr, Jaxpr and JaxprEqn, by class of fxad.
_ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Program": {
            "eqns": "program.jaxpr.eqns",
            "invars": "program.jaxpr.ins: those of program.bound, then those of the arguments",
            "outvars": "program.jaxpr.outs",
            "constvars": "program.jaxpr.ins[:len(program.bound)]",
            "consts literals": "program.bound",
            "pretty_print": "program.text()",
            "lower": "fx.lower(program)",
            "compile as_text cost_analysis memory_analysis memory cost": "fx.lower(program) has text(), stages and "
            "compile(); what compile() returns has memory() and cost()",
            "shape dtype ndim": "program.in_avals and program.out_avals are the types of arguments and results",
            "grad vmap jvp vjp jit remat": "transformations are functions: fx.grad(program)",
        },
        "Jaxpr": {
            "invars": "jaxpr.ins",
            "outvars": "jaxpr.outs",
            "constvars consts literals": "the first of jaxpr.ins; program.bound has the arrays",
            "jaxpr": "it is the jaxpr",
            "pretty_print": "str(jaxpr)",
        },
        "Eqn": {
            "primitive": "eqn.prim",
            "invars": "eqn.ins",
            "outvars": "eqn.outs",
            "params": "the fields of eqn.prim",
            "source_info": "eqn.source",
        },
    }
)


def absent_attribute(owner: str, name: str) -> str:
    """Return the message of the AttributeError for an attribute that an object of class `owner` does not have."""
    message = f"{owner!r} object has no attribute {name!r}"
    remedies = [remedy for names, remedy in _ATTRIBUTES[owner].items() if name in names.split()]
    return f"{message}: {remedies[0]}" if remedies else message


def explained() -> Mapping[str, str]:
    """Return the names of JAX that have an explanation: the path in fxad, and what to write instead."""
    return _OF_JAX


def explained_elsewhere() -> Mapping[str, str]:
    """Return the names of other packages that have an explanation, as `explained` does."""
    return _OF_OTHERS
