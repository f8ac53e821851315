"""The primitives as functions, and functions made of them, with JAX's names and argument orders.

The operands of a primitive must have one dtype and, for elementwise functions, one shape: there is no promotion or
broadcasting. A Python scalar takes the dtype and shape of the array operand. `dot`, `batch_matmul`, and the functions
of SciPy (`betaln`, `multigammaln`, `entr`, `xlogy`, `xlog1py`, `logit`, `expit`, `ndtr`, `log_ndtr`, `ndtri`, `i0`,
`i1`) have the rules of `fxad.numpy`: operands promote and broadcast, and in these functions integers become floats.
"""

from typing import TYPE_CHECKING

from fxad.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from fxad.lax import linalg
    from fxad.lax.barrier import optimization_barrier
    from fxad.lax.binary import (
        add,
        atan2,
        bitwise_and,
        bitwise_or,
        bitwise_xor,
        clamp,
        complex,
        div,
        eq,
        ge,
        gt,
        le,
        lt,
        max,
        min,
        mul,
        ne,
        nextafter,
        polygamma,
        pow,
        rem,
        select,
        select_n,
        shift_left,
        shift_right_arithmetic,
        shift_right_logical,
        sub,
    )
    from fxad.lax.contractions import batch_matmul, dot, dot_general
    from fxad.lax.control import (
        associative_scan,
        checkpoint_name,
        checkpointed_scan,
        cond,
        fori_loop,
        map_ as map,
        scan,
        switch,
        while_loop,
    )
    from fxad.lax.convolution import (
        ConvDimensionNumbers,
        conv,
        conv_dimension_numbers,
        conv_general_dilated,
        conv_general_dilated_patches,
        conv_transpose,
        conv_with_general_padding,
        padtype_to_pads,
    )
    from fxad.lax.creation import (
        broadcasted_iota,
        full,
        full_like,
        iota,
    )
    from fxad.lax.cumulative import (
        cumlogsumexp,
        cummax,
        cummin,
        cumprod,
        cumsum,
        linear_recurrence,
    )
    from fxad.lax.elementwise import (
        abs,
        acos,
        acosh,
        asin,
        asinh,
        atan,
        atanh,
        bitcast_convert_type,
        bitwise_not,
        cbrt,
        ceil,
        clz,
        conj,
        convert_element_type,
        cos,
        cosh,
        digamma,
        erf,
        erf_inv,
        erfc,
        exp,
        exp2,
        expm1,
        floor,
        imag,
        integer_pow,
        is_finite,
        lgamma,
        log,
        log1p,
        log2,
        logistic,
        neg,
        population_count,
        real,
        reciprocal,
        reduce_precision,
        round,
        rsqrt,
        sign,
        sin,
        sinh,
        sqrt,
        square,
        stop_gradient,
        tan,
        tanh,
    )
    from fxad.lax.fourier import (
        FftType,
        fft,
    )
    from fxad.lax.implicit import (
        Breakdown,
        Convergence,
        bicgstab,
        cg,
        custom_fixed_point,
        custom_linear_solve,
        custom_minimize,
        custom_root,
        fixed_point_iteration,
        gmres,
    )
    from fxad.lax.indexing import (
        GatherDimensionNumbers,
        ScatterDimensionNumbers,
        gather,
        scatter,
        scatter_add,
        scatter_apply,
        scatter_max,
        scatter_min,
        scatter_mul,
        scatter_sub,
    )
    from fxad.lax.linear import linear_call
    from fxad.lax.parallel import (
        all_gather,
        all_to_all,
        axis_index,
        axis_size,
        pbroadcast,
        pcast,
        pmax,
        pmean,
        pmin,
        ppermute,
        pshuffle,
        psum,
        psum_scatter,
        pswapaxes,
        pvary,
        with_sharding_constraint,
    )
    from fxad.lax.ragged import RaggedDotDimensionNumbers, ragged_dot, ragged_dot_general
    from fxad.lax.reductions import (
        argmax,
        argmin,
        reduce,
        reduce_and,
        reduce_max,
        reduce_min,
        reduce_or,
        reduce_prod,
        reduce_sum,
        reduce_xor,
    )
    from fxad.lax.shapes import (
        broadcast,
        broadcast_in_dim,
        broadcast_shapes,
        collapse,
        concatenate,
        dynamic_index_in_dim,
        dynamic_slice,
        dynamic_slice_in_dim,
        dynamic_update_index_in_dim,
        dynamic_update_slice,
        dynamic_update_slice_in_dim,
        expand_dims,
        index_in_dim,
        pad,
        reshape,
        rev,
        slice,
        slice_in_dim,
        split,
        squeeze,
        tile,
        transpose,
    )
    from fxad.lax.sorting import (
        sort,
        sort_key_val,
        top_k,
    )
    from fxad.lax.special import (
        bessel_i0e,
        bessel_i1e,
        betainc,
        betaln,
        entr,
        expit,
        i0,
        i1,
        igamma,
        igamma_grad_a,
        igammac,
        log_ndtr,
        logit,
        multigammaln,
        ndtr,
        ndtri,
        random_gamma_grad,
        regularized_incomplete_beta,
        xlog1py,
        xlogy,
        zeta,
    )
    from fxad.lax.windows import (
        reduce_window,
        select_and_gather_add,
        select_and_scatter_add,
    )
    from fxad.operations.precision import Precision, PrecisionLike
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "fxad.lax.barrier": "optimization_barrier",
            "fxad.lax.binary": (
                "add atan2 bitwise_and bitwise_or bitwise_xor clamp complex div eq ge gt le lt max min mul ne "
                "nextafter polygamma pow rem select select_n shift_left shift_right_arithmetic "
                "shift_right_logical sub"
            ),
            "fxad.lax.contractions": "batch_matmul dot dot_general",
            "fxad.lax.control": (
                "associative_scan checkpoint_name checkpointed_scan cond fori_loop map=map_ scan switch while_loop"
            ),
            "fxad.lax.convolution": (
                "ConvDimensionNumbers conv conv_dimension_numbers conv_general_dilated "
                "conv_general_dilated_patches conv_transpose conv_with_general_padding padtype_to_pads"
            ),
            "fxad.lax.creation": "broadcasted_iota full full_like iota",
            "fxad.lax.cumulative": "cumlogsumexp cummax cummin cumprod cumsum linear_recurrence",
            "fxad.lax.elementwise": (
                "abs acos acosh asin asinh atan atanh bitcast_convert_type bitwise_not cbrt ceil clz conj "
                "convert_element_type cos cosh digamma erf erf_inv erfc exp exp2 expm1 floor imag integer_pow "
                "is_finite lgamma log log1p log2 logistic neg population_count real reciprocal reduce_precision round "
                "rsqrt sign sin sinh sqrt square stop_gradient tan tanh"
            ),
            "fxad.lax.fourier": "FftType fft",
            "fxad.lax.implicit": (
                "Breakdown Convergence bicgstab cg custom_fixed_point custom_linear_solve custom_minimize "
                "custom_root fixed_point_iteration gmres"
            ),
            "fxad.lax.indexing": (
                "GatherDimensionNumbers ScatterDimensionNumbers gather scatter scatter_add scatter_apply "
                "scatter_max scatter_min scatter_mul scatter_sub"
            ),
            "fxad.lax.linear": "linear_call",
            "fxad.lax.parallel": (
                "all_gather all_to_all axis_index axis_size pbroadcast pcast pmax pmean pmin ppermute pshuffle psum "
                "psum_scatter pswapaxes pvary with_sharding_constraint"
            ),
            "fxad.operations.precision": "Precision PrecisionLike",
            "fxad.lax.ragged": "RaggedDotDimensionNumbers ragged_dot ragged_dot_general",
            "fxad.lax.reductions": (
                "argmax argmin reduce reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor"
            ),
            "fxad.lax.shapes": (
                "broadcast broadcast_in_dim broadcast_shapes collapse concatenate dynamic_index_in_dim dynamic_slice "
                "dynamic_slice_in_dim "
                "dynamic_update_index_in_dim dynamic_update_slice dynamic_update_slice_in_dim expand_dims "
                "index_in_dim pad reshape rev slice slice_in_dim split squeeze tile transpose"
            ),
            "fxad.lax.sorting": "sort sort_key_val top_k",
            "fxad.lax.special": (
                "bessel_i0e bessel_i1e betainc betaln entr expit i0 i1 igamma igamma_grad_a igammac log_ndtr "
                "logit multigammaln ndtr ndtri random_gamma_grad regularized_incomplete_beta xlog1py xlogy zeta"
            ),
            "fxad.lax.windows": "reduce_window select_and_gather_add select_and_scatter_add",
        },
        "linalg",
    )

__all__ = [
    "Breakdown", "ConvDimensionNumbers", "Convergence", "FftType", "GatherDimensionNumbers", "Precision",
    "PrecisionLike", "RaggedDotDimensionNumbers",
    "ScatterDimensionNumbers", "abs", "acos", "acosh", "add", "all_gather", "all_to_all", "argmax", "argmin",
    "asin", "asinh", "associative_scan", "atan", "atan2", "atanh", "axis_index", "axis_size", "batch_matmul",
    "bessel_i0e", "bessel_i1e", "betainc", "betaln", "bicgstab", "bitcast_convert_type", "bitwise_and",
    "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast", "broadcast_in_dim", "broadcast_shapes", "broadcasted_iota",
    "cbrt",
    "ceil", "cg", "checkpoint_name", "checkpointed_scan", "clamp", "clz", "collapse", "complex", "concatenate", "cond",
    "conj", "conv", "conv_dimension_numbers", "conv_general_dilated", "conv_general_dilated_patches",
    "conv_transpose", "conv_with_general_padding", "convert_element_type", "cos", "cosh", "cumlogsumexp",
    "cummax", "cummin", "cumprod", "cumsum", "custom_fixed_point", "custom_linear_solve", "custom_minimize",
    "custom_root", "digamma", "div", "dot", "dot_general", "dynamic_index_in_dim", "dynamic_slice",
    "dynamic_slice_in_dim", "dynamic_update_index_in_dim", "dynamic_update_slice",
    "dynamic_update_slice_in_dim", "entr", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expand_dims",
    "expit", "expm1", "fft", "fixed_point_iteration", "floor", "fori_loop", "full", "full_like", "gather",
    "ge", "gmres", "gt", "i0", "i1", "igamma", "igamma_grad_a", "igammac", "imag", "index_in_dim",
    "integer_pow", "iota", "is_finite", "le", "lgamma", "linalg", "linear_call", "linear_recurrence", "log",
    "log1p", "log2", "log_ndtr", "logistic", "logit", "lt", "map", "max", "min", "mul", "multigammaln", "ndtr",
    "ndtri", "ne", "neg", "nextafter", "optimization_barrier", "pad", "padtype_to_pads", "pbroadcast", "pcast",
    "pmax", "pmean", "pmin", "polygamma", "population_count", "pow", "ppermute", "pshuffle", "psum", "psum_scatter",
    "pswapaxes", "pvary",
    "ragged_dot", "ragged_dot_general",
    "random_gamma_grad", "real", "reciprocal", "reduce", "reduce_and", "reduce_max", "reduce_min",
    "reduce_or", "reduce_precision", "reduce_prod", "reduce_sum", "reduce_window", "reduce_xor",
    "regularized_incomplete_beta", "rem", "reshape", "rev", "round", "rsqrt", "scan", "scatter",
    "scatter_add", "scatter_apply", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub", "select",
    "select_and_gather_add", "select_and_scatter_add", "select_n", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "sin", "sinh", "slice", "slice_in_dim", "sort", "sort_key_val", "split", "sqrt",
    "square", "squeeze", "stop_gradient", "sub", "switch", "tan", "tanh", "tile", "top_k", "transpose", "while_loop",
    "with_sharding_constraint", "xlog1py", "xlogy", "zeta",
]  # fmt: skip
