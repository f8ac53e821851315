"""Attention: means of values, weighted by the softmax of the products of queries and keys."""

from __future__ import annotations

import math
from typing import Final, Literal, overload

import numpy as np

import fxad.numpy as fnp
from fxad import dtypes, lax
from fxad.errors import ParameterError, ShapeError, shown
from fxad.nn.normalizations import logsumexp, softmax
from fxad.numpy.apply import as_array, as_inexact_array
from fxad.numpy.composites import jit_composite_all
from fxad.operations.arguments import flag, number, one_or_more
from fxad.tracing.array import Array, ArrayLike

_LARGE: Final = -0.7  # of the greatest number: far below any score, and two of them do not overflow


@overload
def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = ...,
    mask: ArrayLike | None = ...,
    *,
    scale: float | None = ...,
    is_causal: bool = ...,
    query_seq_lengths: ArrayLike | None = ...,
    key_value_seq_lengths: ArrayLike | None = ...,
    local_window_size: int | tuple[int, int] | None = ...,
    implementation: str | None = ...,
    return_residual: Literal[False] = ...,
) -> Array: ...
@overload
def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = ...,
    mask: ArrayLike | None = ...,
    *,
    scale: float | None = ...,
    is_causal: bool = ...,
    query_seq_lengths: ArrayLike | None = ...,
    key_value_seq_lengths: ArrayLike | None = ...,
    local_window_size: int | tuple[int, int] | None = ...,
    implementation: str | None = ...,
    return_residual: Literal[True],
) -> tuple[Array, Array]: ...
def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Array | tuple[Array, Array]:
    """Return softmax(query @ key^T * scale + bias) @ value for each head.

    Type:   query [B,T,N,H]; key and value [B,S,K,H], where K divides N: each key and value head serves N / K query
            heads. All may lack B. bias and mask broadcast to [B,N,T,S]; mask is bool, True where attention is allowed.
            The lengths are [B]: positions from a length on are padding, and results of padded queries are 0.
            `local_window_size` limits the distance of a key to the left and to the right of a query. `scale` is 1 /
            sqrt(H) by default. `implementation` is None or "xla". With `return_residual` the result is a pair: the
            second is the logarithm of the sum of the exponentials of the scores, [B,T,N], in the dtype of `key`; scores
            where attention is not allowed are a large negative number. It has a derivative, which JAX sets to 0.
    Rule:   scores and weights are computed at least in float32. A query without an allowed key attends to all keys
            equally. A key that no query may read, and a query without an allowed key, may contain nan: neither results
            nor derivatives of the others depend on it.
    Raises: ShapeError, ParameterError.
    Source: Vaswani et al., Attention Is All You Need, https://arxiv.org/abs/1706.03762; grouped heads: Ainslie et al.,
            https://arxiv.org/abs/2305.13245
    """
    name = "dot_product_attention"
    is_causal = flag(name, "is_causal", is_causal)
    return_residual = flag(name, "return_residual", return_residual)
    if not (implementation is None or (isinstance(implementation, str) and implementation == "xla")):
        raise ParameterError(
            f"{name}: implementation {shown(implementation, 40)} does not exist", remedy='use "xla", or None'
        )
    q, k, v = [as_inexact_array(name, x, at) for at, x in enumerate((query, key, value))]
    unbatched = q.ndim == 3
    if unbatched:
        q, k, v = q[None], k[None], v[None]
    _check_operands(q, k, v)
    b, t, n, h = q.shape
    s = k.shape[1]
    full = (b, n, t, s)
    added = None if bias is None else _score_operand(name, "bias", as_array(name, bias, 3), full)
    kept = None if mask is None else _score_mask(name, as_array(name, mask, 4), full)
    lengths = [
        None if a is None else _sequence_lengths(what, as_array(name, a), b)
        for what, a in (("query_seq_lengths", query_seq_lengths), ("key_value_seq_lengths", key_value_seq_lengths))
    ]
    window = None if local_window_size is None else one_or_more(name, "local_window_size", local_window_size)
    window = (window, window) if isinstance(window, int) else window
    if window is not None and len(window) != 2:
        raise ParameterError(f"{name}: local_window_size {window} must be one size, or those to the left and right")
    if window is not None and sum(window) < 0:  # one of them may be negative: (-1, 3) are the next three keys
        raise ParameterError(
            f"{name}: local_window_size {window} allows no key", remedy="0 allows the position of the query alone"
        )
    scale = 1 / math.sqrt(h) if scale is None else number(name, "scale", scale)
    static = scale, is_causal, window, return_residual
    results = jit_composite_all(_attention, q, k, v, added, kept, *lengths, *static)
    results = tuple([out[0] for out in results]) if unbatched else results
    return (results[0], results[1]) if return_residual else results[0]


def _check_operands(q: Array, k: Array, v: Array) -> None:
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape:
        raise ShapeError(
            f"dot_product_attention: query {q.aval}, key {k.aval} and value {v.aval} are not [B,T,N,H], [B,S,K,H] and "
            "[B,S,K,H]"
        )
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ShapeError(f"dot_product_attention: batch or head sizes differ: query {q.aval}, key {k.aval}")
    if k.shape[2] == 0 or q.shape[2] % k.shape[2] != 0:
        raise ShapeError(
            f"dot_product_attention: {k.shape[2]} heads of key and value do not divide {q.shape[2]} heads of query"
        )


def _score_operand(op: str, what: str, x: Array, full: tuple[int, ...]) -> Array:
    """Return a bias or a mask with the axes of the scores. Raises: ShapeError."""
    x = x.reshape((1,) * (4 - x.ndim) + x.shape) if x.ndim < 4 else x
    if x.ndim != 4 or any([n not in (1, m) for n, m in zip(x.shape, full, strict=True)]):
        raise ShapeError(f"{op}: {what} {x.aval} does not broadcast to {full}")
    return x


def _score_mask(op: str, x: Array, full: tuple[int, ...]) -> Array:
    """Return a mask with the axes of the scores. Raises: ShapeError; ParameterError for a mask that is not bool."""
    mask = _score_operand(op, "mask", x, full)
    if mask.dtype is not dtypes.bool_:
        raise ParameterError(f"{op}: mask must be bool, got {mask.aval}", remedy="add what is not bool as a bias")
    return mask


def _sequence_lengths(what: str, x: Array, batch: int) -> Array:
    if x.shape != (batch,) or x.dtype not in dtypes.INTEGER:
        raise ShapeError(f"dot_product_attention: {what} must be {batch} integers, got {x.aval}")
    return x


def _attention(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None,
    mask: Array | None,
    q_lengths: Array | None,
    k_lengths: Array | None,
    scale: float,
    is_causal: bool,
    window: tuple[int, int] | None,
    return_residual: bool,
) -> tuple[Array, ...]:
    b, t, n, h = q.shape
    s, groups = k.shape[1], k.shape[2]
    # a weight of 0 does not keep nan of the padding out of a sum, nor out of a derivative
    if q_lengths is not None:
        q = fnp.where(_before_end(q_lengths, t).reshape(b, t, 1, 1), q, 0)
    if k_lengths is not None:
        inside = _before_end(k_lengths, s).reshape(b, s, 1, 1)
        k, v = fnp.where(inside, k, 0), fnp.where(inside, v, 0)
    allowed = _attention_mask(t, s, mask, q_lengths, k_lengths, is_causal, window)
    # Lengths alone leave no key unread that is not 0 already. Nor does a causal square, whose queries read their own
    # positions, unless some of them are padding.
    causal_unread = is_causal and (t != s or q_lengths is not None)
    if allowed is not None and (mask is not None or window is not None or causal_unread):
        pairs = allowed.any(1)
        read, reads = [fnp.expand_dims(pairs.any(axis), (2, 3)) for axis in (1, 2)]
        k, v = _finite_where_unread(k, read), _finite_where_unread(v, read)
        q = _finite_where_unread(q, reads)
    wide = fnp.promote_types(q.dtype, np.float32)
    grouped = q.reshape(b, t, groups, n // groups, h)
    scores = fnp.einsum("btkgh,bskh->bkgts", grouped, k, preferred_element_type=wide).reshape(b, n, t, s) * scale
    if bias is not None:
        scores = (scores + bias).astype(scores.dtype)
    if allowed is not None:
        scores = fnp.where(allowed, scores, _LARGE * float(fnp.finfo(scores.dtype).max))
    weights = softmax(scores).astype(k.dtype).reshape(b, groups, n // groups, t, s)
    out = fnp.einsum("bkgts,bskh->btkgh", weights, v).reshape(b, t, n, h)
    if q_lengths is not None:
        out = fnp.where(_before_end(q_lengths, t).reshape(b, t, 1, 1), out, 0)
    out = out.astype(q.dtype)
    return (out, logsumexp(scores, -1).transpose(0, 2, 1).astype(k.dtype)) if return_residual else (out,)


def _finite_where_unread(x: Array, read: Array) -> Array:
    """Return x with 0 for nan and infinities at positions that no allowed pair reads. Finite elements are kept: a query
    without an allowed key attends to all keys."""
    return fnp.where(read | fnp.isfinite(x), x, 0)


def _attention_mask(
    t: int,
    s: int,
    mask: Array | None,
    q_lengths: Array | None,
    k_lengths: Array | None,
    is_causal: bool,
    window: tuple[int, int] | None,
) -> Array | None:
    """Return a mask of the allowed pairs that broadcasts to [B,N,T,S]; None if all are allowed."""
    parts = [] if mask is None else [mask]
    query_place, key_place = [lax.broadcasted_iota(np.int32, (1, 1, t, s), axis) for axis in (2, 3)]
    if is_causal:
        parts.append(query_place >= key_place)
    if window is not None:
        parts += [query_place <= key_place + window[0], query_place >= key_place - window[1]]
    if q_lengths is not None:
        parts.append(_before_end(q_lengths, t).reshape(-1, 1, t, 1))
    if k_lengths is not None:
        parts.append(_before_end(k_lengths, s).reshape(-1, 1, 1, s))
    if not parts:
        return None
    allowed = parts[0]
    for part in parts[1:]:
        allowed = allowed & part
    return allowed


def _before_end(lengths: Array, size: int) -> Array:
    """Return a mask [B, size] of the positions before the end of each sequence."""
    return lax.broadcasted_iota(np.int32, (lengths.shape[0], size), 1) < lengths.reshape(-1, 1)
