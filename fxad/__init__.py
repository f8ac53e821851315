"""fxad: programs as values. Trace a function once; transform, compare, store, compile and run the program.

>>> import fxad as fx
>>> import fxad.numpy as fnp
>>> program = fx.trace(lambda x: fnp.sum(fnp.sin(x)), fx.Spec((3,), "float32"))
>>> gradient = fx.lower(fx.grad(fx.remat(program))).compile()

The public modules are `fx.lax`, `fx.numpy`, `fx.random` and `fx.nn`. Modules that few programs use are imported at
their first use.
"""

from typing import TYPE_CHECKING, Final

from fxad import dtypes as dtypes, errors as errors, passes as passes
from fxad.api.gradients import (
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    value_and_grad as value_and_grad,
)
from fxad.api.jit import jit as jit
from fxad.core.lazy_exports import lazy_exports
from fxad.dtypes import float0 as float0
from fxad.execution.executable import Executable as Executable, Lowered as Lowered, lower as lower
from fxad.ir import Aval as Aval, Jaxpr as Jaxpr
from fxad.runtime import (
    Cache as Cache,
    CompileOptions as CompileOptions,
    Device as Device,
    cache as cache,
    devices as devices,
    set_cpu_devices as set_cpu_devices,
)
from fxad.tracing.array import Array as Array, ArrayLike as ArrayLike, asarray as asarray
from fxad.tracing.program import Program as Program, ShapeDtypeStruct as ShapeDtypeStruct, Spec as Spec, trace as trace

__version__: Final = "0.1.0"

if TYPE_CHECKING:
    from fxad import (
        ad_checkpoint as ad_checkpoint,
        custom_batching as custom_batching,
        custom_derivatives as custom_derivatives,
        debug as debug,
        distributed as distributed,
        experimental as experimental,
        extend as extend,
        flatten_util as flatten_util,
        image as image,
        interop as interop,
        lax as lax,
        nn as nn,
        numpy as numpy,
        ops as ops,
        optim as optim,
        random as random,
        scipy as scipy,
        sharding as sharding,
        stages as stages,
        test_util as test_util,
        testing as testing,
        text as text,
        tree as tree,
        tree_util as tree_util,
        typing as typing,
    )
    from fxad.api.buckets import (
        bucketed as bucketed,
        padded_size as padded_size,
        ragged_batches as ragged_batches,
    )
    from fxad.api.budget import plan_memory as plan_memory
    from fxad.api.comm import comm as comm
    from fxad.api.custom.derived_decorators import custom_gradient as custom_gradient
    from fxad.api.custom_function import (
        CustomFunction as CustomFunction,
        custom_jvp as custom_jvp,
        custom_vjp as custom_vjp,
        custom_vmap as custom_vmap,
    )
    from fxad.api.device_put import (
        device_put as device_put,
        make_array_from_callback as make_array_from_callback,
        make_array_from_process_local_data as make_array_from_process_local_data,
        make_array_from_single_device_arrays as make_array_from_single_device_arrays,
    )
    from fxad.api.devices import (
        block_until_ready as block_until_ready,
        default_backend as default_backend,
        device_count as device_count,
        device_get as device_get,
        effects_barrier as effects_barrier,
        local_device_count as local_device_count,
        local_devices as local_devices,
        process_count as process_count,
        process_index as process_index,
    )
    from fxad.api.directional import (
        Linearized as Linearized,
        jvp as jvp,
        linearize as linearize,
        transpose as transpose,
        vjp as vjp,
    )
    from fxad.api.explain_nan import NanExplanation as NanExplanation, explain_nan as explain_nan
    from fxad.api.exported import Exported as Exported, load_exported as load_exported
    from fxad.api.inverse import (
        custom_inverse as custom_inverse,
        custom_ivjp as custom_ivjp,
        inverse as inverse,
        invertible as invertible,
        reconstruction_error as reconstruction_error,
    )
    from fxad.api.mask import mask as mask, shapecheck as shapecheck
    from fxad.api.memory import Partial as Partial, partial_eval as partial_eval, residuals as residuals
    from fxad.api.outline import outline as outline, reroll as reroll
    from fxad.api.pmap import pmap as pmap
    from fxad.api.reference import diff as diff, interpret as interpret
    from fxad.api.rewrite import (
        apply_passes as apply_passes,
        cse as cse,
        dce as dce,
        inline as inline,
        remat as remat,
        simplify as simplify,
        specialize as specialize,
    )
    from fxad.api.shard_map import shard_map as shard_map
    from fxad.api.soft_pmap import soft_pmap as soft_pmap
    from fxad.api.staging import (
        checkpoint as checkpoint,
        closure_convert as closure_convert,
        disable_jit as disable_jit,
        ensure_compile_time_eval as ensure_compile_time_eval,
        eval_shape as eval_shape,
        linear_transpose as linear_transpose,
        make_jaxpr as make_jaxpr,
        named_call as named_call,
        named_scope as named_scope,
        typeof as typeof,
    )
    from fxad.api.symbolic_zeros import CustomVJPPrimal as CustomVJPPrimal, SymbolicZero as SymbolicZero
    from fxad.api.vmap import vmap as vmap
    from fxad.core.typecheck import typecheck as typecheck
    from fxad.lax import checkpoint_name as checkpoint_name, stop_gradient as stop_gradient
    from fxad.lax.control.checking import error_if as error_if
    from fxad.lax.control.host import (
        debug_callback as debug_callback,
        debug_print as debug_print,
        io_callback as io_callback,
        pure_callback as pure_callback,
    )
    from fxad.lax.parallel import with_sharding_constraint as with_sharding_constraint
    from fxad.sharding import NamedSharding as NamedSharding, P as P, make_mesh as make_mesh, set_mesh as set_mesh
    from fxad.storage.programs import load as load, save as save
    from fxad.transforms.memory import checkpoint_policies as checkpoint_policies, policies as policies
    from fxad.xla.profiler import profile as profile
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "fxad.api.comm": "comm",
            "fxad.api.pmap": "pmap",
            "fxad.api.shard_map": "shard_map",
            "fxad.api.soft_pmap": "soft_pmap",
            "fxad.sharding": "NamedSharding P make_mesh set_mesh",
            "fxad.api.custom_function": "CustomFunction custom_jvp custom_vjp custom_vmap",
            "fxad.api.directional": "Linearized jvp linearize transpose vjp",
            "fxad.api.exported": "Exported load_exported",
            "fxad.api.inverse": "custom_inverse custom_ivjp inverse invertible reconstruction_error",
            "fxad.api.buckets": "bucketed padded_size ragged_batches",
            "fxad.api.mask": "mask shapecheck",
            "fxad.api.budget": "plan_memory",
            "fxad.api.memory": "Partial partial_eval residuals",
            "fxad.api.explain_nan": "NanExplanation explain_nan",
            "fxad.api.device_put": (
                "device_put make_array_from_callback make_array_from_process_local_data "
                "make_array_from_single_device_arrays"
            ),
            "fxad.api.reference": "diff interpret",
            "fxad.api.rewrite": "apply_passes cse dce inline remat simplify specialize",
            "fxad.api.outline": "outline reroll",
            "fxad.api.custom.derived_decorators": "custom_gradient",
            "fxad.api.devices": (
                "block_until_ready default_backend device_count device_get effects_barrier local_device_count "
                "local_devices process_count process_index"
            ),
            "fxad.api.staging": (
                "checkpoint closure_convert disable_jit ensure_compile_time_eval eval_shape linear_transpose "
                "make_jaxpr named_call named_scope typeof"
            ),
            "fxad.api.symbolic_zeros": "CustomVJPPrimal SymbolicZero",
            "fxad.api.vmap": "vmap",
            "fxad.core.typecheck": "typecheck",
            "fxad.storage.programs": "load save",
            "fxad.lax": "checkpoint_name stop_gradient",
            "fxad.lax.parallel": "with_sharding_constraint",
            "fxad.lax.control.checking": "error_if",
            "fxad.lax.control.host": "debug_callback debug_print io_callback pure_callback",
            "fxad.transforms.memory": "checkpoint_policies policies",
            "fxad.xla.profiler": "profile",
        },
        "ad_checkpoint custom_batching custom_derivatives debug distributed dtypes errors experimental "
        "extend flatten_util image interop lax nn numpy ops optim passes random scipy sharding stages test_util "
        "testing text tree tree_util typing",
    )
