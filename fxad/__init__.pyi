from . import (
    ad_checkpoint as ad_checkpoint,
    custom_batching as custom_batching,
    custom_derivatives as custom_derivatives,
    debug as debug,
    distributed as distributed,
    dtypes as dtypes,
    errors as errors,
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
    passes as passes,
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
from .api.buckets import bucketed as bucketed, padded_size as padded_size, ragged_batches as ragged_batches
from .api.budget import plan_memory as plan_memory
from .api.comm import comm as comm
from .api.custom.derived_decorators import custom_gradient as custom_gradient
from .api.custom_function import (
    CustomFunction as CustomFunction,
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
    custom_vmap as custom_vmap,
)
from .api.device_put import (
    device_put as device_put,
    make_array_from_callback as make_array_from_callback,
    make_array_from_process_local_data as make_array_from_process_local_data,
    make_array_from_single_device_arrays as make_array_from_single_device_arrays,
)
from .api.devices import (
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
from .api.directional import (
    Linearized as Linearized,
    jvp as jvp,
    linearize as linearize,
    transpose as transpose,
    vjp as vjp,
)
from .api.explain_nan import NanExplanation as NanExplanation, explain_nan as explain_nan
from .api.exported import Exported as Exported, load_exported as load_exported
from .api.gradients import (
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacobian as jacobian,
    jacrev as jacrev,
    value_and_grad as value_and_grad,
)
from .api.inverse import (
    custom_inverse as custom_inverse,
    custom_ivjp as custom_ivjp,
    inverse as inverse,
    invertible as invertible,
    reconstruction_error as reconstruction_error,
)
from .api.jet import jet as jet
from .api.jit import jit as jit
from .api.mask import mask as mask, shapecheck as shapecheck
from .api.memory import Partial as Partial, partial_eval as partial_eval, residuals as residuals
from .api.operators import (
    biharmonic as biharmonic,
    collapse as collapse,
    laplacian as laplacian,
    operator as operator,
    value_and_biharmonic as value_and_biharmonic,
    value_and_laplacian as value_and_laplacian,
    value_and_operator as value_and_operator,
)
from .api.outline import outline as outline, reroll as reroll
from .api.pmap import pmap as pmap
from .api.precision import (
    cast as cast,
    plan_precision as plan_precision,
    rounding_errors as rounding_errors,
    shadow as shadow,
)
from .api.reference import diff as diff, interpret as interpret
from .api.rewrite import (
    apply_passes as apply_passes,
    cse as cse,
    dce as dce,
    inline as inline,
    remat as remat,
    simplify as simplify,
    specialize as specialize,
)
from .api.shard_map import shard_map as shard_map
from .api.soft_pmap import soft_pmap as soft_pmap
from .api.sparse.derivatives import (
    sparse_hessian as sparse_hessian,
    sparse_jacobian as sparse_jacobian,
)
from .api.sparse.matrix import Sparse as Sparse
from .api.sparse.sparsity import sparsity as sparsity
from .api.staging import (
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
from .api.symbolic_zeros import CustomVJPPrimal as CustomVJPPrimal, SymbolicZero as SymbolicZero
from .api.vmap import vmap as vmap
from .core.typecheck import typecheck as typecheck
from .diagnosis.bisect.bisect import bisect as bisect
from .diagnosis.bisect.divergence import Divergence as Divergence
from .diagnosis.equality.equal import (
    Counterexample as Counterexample,
    Proof as Proof,
    Unknown as Unknown,
    equal as equal,
)
from .diagnosis.explain import explain as explain
from .diagnosis.record.recording import record as record
from .diagnosis.record.replay import RecordedCall as RecordedCall, replay as replay
from .diagnosis.reduce.reduce_program import reduce_program as reduce_program
from .dtypes import float0 as float0
from .execution.executable import Executable as Executable, Lowered as Lowered, lower as lower
from .ir import Aval as Aval, Jaxpr as Jaxpr
from .lax import checkpoint_name as checkpoint_name, stop_gradient as stop_gradient
from .lax.control.checking import error_if as error_if
from .lax.control.host import (
    debug_callback as debug_callback,
    debug_print as debug_print,
    io_callback as io_callback,
    pure_callback as pure_callback,
)
from .lax.parallel import with_sharding_constraint as with_sharding_constraint
from .runtime import (
    Cache as Cache,
    CompileOptions as CompileOptions,
    Device as Device,
    cache as cache,
    devices as devices,
    set_cpu_devices as set_cpu_devices,
)
from .sharding import NamedSharding as NamedSharding, P as P, make_mesh as make_mesh, set_mesh as set_mesh
from .storage.programs import load as load, save as save
from .tracing.array import Array as Array, ArrayLike as ArrayLike, asarray as asarray
from .tracing.program import Program as Program
from .tracing.spec import ShapeDtypeStruct as ShapeDtypeStruct, Spec as Spec
from .tracing.trace import trace as trace
from .transforms.memory import checkpoint_policies as checkpoint_policies, policies as policies
from .transforms.precision.cast import sensitive_operations as sensitive_operations
from .transforms.sparse.decompression import Coloring as Coloring
from .transforms.sparse.pattern import Pattern as Pattern
from .xla.profiler import profile as profile

__version__: str
