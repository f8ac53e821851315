"""The primitives of JAX that have no translation, and why."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

_REASONS: Final = MappingProxyType({
    "it changes an array in place; a program of fxad is pure": (
        "accum_grad_in_ref addupdate box_get box_set broadcast_to create_linear empty_ref free_ref freeze get "
        "log_extend log_read new_box new_log new_ref pin run_state swap unpin"
    ),
    "it is a part of a kernel of Pallas": "core_map with_memory_space_constraint load masked_load program_id",
    "it calls a library of one platform": (
        "cudnn_fusion dot_product_attention_bwd dot_product_attention_bwd_wrapper dot_product_attention_fp8_bwd "
        "dot_product_attention_fp8_bwd_wrapper dot_product_attention_fp8_fwd dot_product_attention_fp8_fwd_wrapper "
        "dot_product_attention_fwd dot_product_attention_fwd_wrapper scaled_matmul scaled_matmul_wrapper scaled_dot"
    ),
    "it calls foreign code by name": "ffi_call custom_partitioning call_exported",
    "it belongs to a type of the user that JAX has not lowered": (
        "call_hi_primitive_linearized stage"
    ),
    "it exists only while JAX differentiates": (
        "custom_jvp_call_jaxpr custom_lin remat_opt unreachable tie dce_sink"
    ),
    "it orders effects by tokens, which fxad does not have": "after_all create_token",
    "it is for dimensions that are not numbers": "dim_as_value dimension_size shape_assertion",
    "it checks at run time; fxad has error_if": "check",
    "it prints the layout of an array among devices": "inspect_sharding",
    "it is for arrays of several processes": "global_array_to_host_local_array host_local_array_to_global_array",
    "fxad draws random numbers from Threefry-2x32 only": (
        "philox2x32 philox4x32 threefry4x32 rng_bit_generator rng_uniform"
    ),
    "fxad has no such decomposition": "geqp3 hessenberg",
    "fxad has no scatter that a body selects for": "select_and_scatter",
    "fxad has no such collective": (
        "all_gather_reduced pbroadcast pbroadcast_dynamic preduced precv psend ragged_all_to_all reduced_vary_cast "
        "reduced_vary_cast_p unreduced_pmax unreduced_pmin unreduced_psum unreduced_reduce_scatter "
        "vary_unreduced_cast vary_unreduced_cast_p"
    ),
    "fxad has no collectives that start and end apart": (
        "all_gather_done all_gather_reduced_start all_gather_start all_to_all_done all_to_all_start pbroadcast_done "
        "pbroadcast_start ppermute_done ppermute_start psum_done psum_invariant_start psum_start reduce_scatter_done "
        "reduce_scatter_start unreduced_psum_start unreduced_reduce_scatter_start"
    ),
})  # fmt: skip

REFUSED: Final = MappingProxyType({name: why for why, names in _REASONS.items() for name in names.split()})
