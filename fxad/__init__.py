"""fxad: programs as values. Trace a function once; transform, compare, store, compile and run the program.

>>> import fxad as fx
>>> import fxad.numpy as fnp
>>> program = fx.trace(lambda x: fnp.sum(fnp.sin(x)), fx.Spec((3,), "float32"))
>>> gradient = fx.lower(fx.grad(fx.remat(program))).compile()

The public modules are `fx.lax`, `fx.numpy`, `fx.random` and `fx.nn`. Modules that few programs use are imported at
their first use.
"""

from typing import TYPE_CHECKING

from fxad import dtypes as dtypes
from fxad import errors as errors
from fxad import passes as passes
from fxad import tree as tree
from fxad.api.gradients import grad as grad
from fxad.api.gradients import hessian as hessian
from fxad.api.gradients import jacfwd as jacfwd
from fxad.api.gradients import jacobian as jacobian
from fxad.api.gradients import jacrev as jacrev
from fxad.api.gradients import value_and_grad as value_and_grad
from fxad.api.jit import jit as jit
from fxad.api.reference import diff as diff
from fxad.api.reference import interpret as interpret
from fxad.api.vmap import vmap as vmap
from fxad.core.lazy_exports import lazy_exports
from fxad.core.typecheck import typecheck as typecheck
from fxad.dtypes import float0 as float0
from fxad.execution.executable import Executable as Executable
from fxad.execution.executable import Lowered as Lowered
from fxad.execution.executable import lower as lower
from fxad.ir import Aval as Aval
from fxad.ir import Jaxpr as Jaxpr
from fxad.runtime import Cache as Cache
from fxad.runtime import CompileOptions as CompileOptions
from fxad.runtime import Device as Device
from fxad.runtime import cache as cache
from fxad.runtime import devices as devices
from fxad.runtime import set_cpu_devices as set_cpu_devices
from fxad.tracing.array import Array as Array
from fxad.tracing.array import ArrayLike as ArrayLike
from fxad.tracing.array import asarray as asarray
from fxad.tracing.program import Program as Program
from fxad.tracing.program import ShapeDtypeStruct as ShapeDtypeStruct
from fxad.tracing.program import Spec as Spec
from fxad.tracing.program import trace as trace

if TYPE_CHECKING:
    from fxad import ad_checkpoint as ad_checkpoint
    from fxad import custom_batching as custom_batching
    from fxad import custom_derivatives as custom_derivatives
    from fxad import debug as debug
    from fxad import distributed as distributed
    from fxad import experimental as experimental
    from fxad import extend as extend
    from fxad import flatten_util as flatten_util
    from fxad import image as image
    from fxad import lax as lax
    from fxad import nn as nn
    from fxad import numpy as numpy
    from fxad import ops as ops
    from fxad import optim as optim
    from fxad import random as random
    from fxad import scipy as scipy
    from fxad import sharding as sharding
    from fxad import stages as stages
    from fxad import test_util as test_util
    from fxad import text as text
    from fxad import tree_util as tree_util
    from fxad import typing as typing
    from fxad.api.budget import plan_memory as plan_memory
    from fxad.api.comm import comm as comm
    from fxad.api.custom import CustomFunction as CustomFunction
    from fxad.api.custom import custom_jvp as custom_jvp
    from fxad.api.custom import custom_vjp as custom_vjp
    from fxad.api.custom import custom_vmap as custom_vmap
    from fxad.api.custom_functions import custom_gradient as custom_gradient
    from fxad.api.device_put import device_put as device_put
    from fxad.api.device_put import make_array_from_callback as make_array_from_callback
    from fxad.api.device_put import make_array_from_process_local_data as make_array_from_process_local_data
    from fxad.api.device_put import make_array_from_single_device_arrays as make_array_from_single_device_arrays
    from fxad.api.directional import Linearized as Linearized
    from fxad.api.directional import jvp as jvp
    from fxad.api.directional import linearize as linearize
    from fxad.api.directional import transpose as transpose
    from fxad.api.directional import vjp as vjp
    from fxad.api.explain_nan import NanExplanation as NanExplanation
    from fxad.api.explain_nan import explain_nan as explain_nan
    from fxad.api.exported import Exported as Exported
    from fxad.api.exported import load_exported as load_exported
    from fxad.api.inverse import custom_inverse as custom_inverse
    from fxad.api.inverse import custom_ivjp as custom_ivjp
    from fxad.api.inverse import inverse as inverse
    from fxad.api.inverse import invertible as invertible
    from fxad.api.inverse import reconstruction_error as reconstruction_error
    from fxad.api.mask import bucketed as bucketed
    from fxad.api.mask import mask as mask
    from fxad.api.mask import padded_size as padded_size
    from fxad.api.mask import ragged_batches as ragged_batches
    from fxad.api.mask import shapecheck as shapecheck
    from fxad.api.memory import Partial as Partial
    from fxad.api.memory import partial_eval as partial_eval
    from fxad.api.memory import residuals as residuals
    from fxad.api.rewrite import apply_passes as apply_passes
    from fxad.api.rewrite import cse as cse
    from fxad.api.rewrite import dce as dce
    from fxad.api.rewrite import inline as inline
    from fxad.api.rewrite import outline as outline
    from fxad.api.rewrite import remat as remat
    from fxad.api.rewrite import reroll as reroll
    from fxad.api.rewrite import simplify as simplify
    from fxad.api.rewrite import specialize as specialize
    from fxad.api.shard_map import pmap as pmap
    from fxad.api.shard_map import shard_map as shard_map
    from fxad.api.soft_pmap import soft_pmap as soft_pmap
    from fxad.api.staging import block_until_ready as block_until_ready
    from fxad.api.staging import checkpoint as checkpoint
    from fxad.api.staging import closure_convert as closure_convert
    from fxad.api.staging import default_backend as default_backend
    from fxad.api.staging import device_count as device_count
    from fxad.api.staging import device_get as device_get
    from fxad.api.staging import disable_jit as disable_jit
    from fxad.api.staging import effects_barrier as effects_barrier
    from fxad.api.staging import ensure_compile_time_eval as ensure_compile_time_eval
    from fxad.api.staging import eval_shape as eval_shape
    from fxad.api.staging import linear_transpose as linear_transpose
    from fxad.api.staging import local_device_count as local_device_count
    from fxad.api.staging import local_devices as local_devices
    from fxad.api.staging import make_jaxpr as make_jaxpr
    from fxad.api.staging import named_call as named_call
    from fxad.api.staging import named_scope as named_scope
    from fxad.api.staging import process_count as process_count
    from fxad.api.staging import process_index as process_index
    from fxad.api.staging import typeof as typeof
    from fxad.api.symbolic import CustomVJPPrimal as CustomVJPPrimal
    from fxad.api.symbolic import SymbolicZero as SymbolicZero
    from fxad.lax import checkpoint_name as checkpoint_name
    from fxad.lax import stop_gradient as stop_gradient
    from fxad.lax.control.checking import error_if as error_if
    from fxad.lax.control.host import debug_callback as debug_callback
    from fxad.lax.control.host import debug_print as debug_print
    from fxad.lax.control.host import io_callback as io_callback
    from fxad.lax.control.host import pure_callback as pure_callback
    from fxad.lax.parallel import with_sharding_constraint as with_sharding_constraint
    from fxad.sharding import NamedSharding as NamedSharding
    from fxad.sharding import P as P
    from fxad.sharding import make_mesh as make_mesh
    from fxad.sharding import set_mesh as set_mesh
    from fxad.storage.programs import load as load
    from fxad.storage.programs import save as save
    from fxad.transforms.memory import checkpoint_policies as checkpoint_policies
    from fxad.transforms.memory import policies as policies
    from fxad.xla.profiler import profile as profile
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "fxad.api.comm": "comm",
            "fxad.api.shard_map": "pmap shard_map",
            "fxad.api.soft_pmap": "soft_pmap",
            "fxad.sharding": "NamedSharding P make_mesh set_mesh",
            "fxad.api.custom": "CustomFunction custom_jvp custom_vjp custom_vmap",
            "fxad.api.directional": "Linearized jvp linearize transpose vjp",
            "fxad.api.exported": "Exported load_exported",
            "fxad.api.inverse": "custom_inverse custom_ivjp inverse invertible reconstruction_error",
            "fxad.api.mask": "bucketed mask padded_size ragged_batches shapecheck",
            "fxad.api.budget": "plan_memory",
            "fxad.api.memory": "Partial partial_eval residuals",
            "fxad.api.explain_nan": "NanExplanation explain_nan",
            "fxad.api.device_put": (
                "device_put make_array_from_callback make_array_from_process_local_data "
                "make_array_from_single_device_arrays"
            ),
            "fxad.api.rewrite": "apply_passes cse dce inline outline remat reroll simplify specialize",
            "fxad.api.custom_functions": "custom_gradient",
            "fxad.api.staging": (
                "block_until_ready checkpoint closure_convert default_backend device_get disable_jit effects_barrier "
                "device_count ensure_compile_time_eval eval_shape local_device_count local_devices "
                "process_count process_index linear_transpose make_jaxpr named_call named_scope typeof"
            ),
            "fxad.api.symbolic": "CustomVJPPrimal SymbolicZero",
            "fxad.storage.programs": "load save",
            "fxad.lax": "checkpoint_name stop_gradient",
            "fxad.lax.parallel": "with_sharding_constraint",
            "fxad.lax.control.checking": "error_if",
            "fxad.lax.control.host": "debug_callback debug_print io_callback pure_callback",
            "fxad.transforms.memory": "checkpoint_policies policies",
            "fxad.xla.profiler": "profile",
        },
        "ad_checkpoint custom_batching custom_derivatives debug distributed dtypes errors experimental "
        "extend flatten_util image lax nn numpy ops optim passes random scipy sharding stages text test_util "
        "tree tree_util typing",
    )
