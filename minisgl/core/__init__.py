"""The nouns of the engine: what a request asks for, what one batch computes, what comes back."""

from minisgl.core.batch import Batch, PageTableUpdate, PrefixGroup
from minisgl.core.capacity import CAPACITY_FACTORS
from minisgl.core.context import Context, KVPool, Staging, get_global_ctx, reset_global_ctx, set_global_ctx
from minisgl.core.errors import FieldError
from minisgl.core.explanation import CAUSES, Cause, Explanation
from minisgl.core.forward import BatchOutput, BatchResult, Forward, ForwardInput, TokenLogprobs
from minisgl.core.limits import ContextLengthError, Limits
from minisgl.core.req import Req
from minisgl.core.sampling_params import SamplingParams, with_advice

__all__ = [
    "CAPACITY_FACTORS",
    "CAUSES",
    "Batch",
    "BatchOutput",
    "BatchResult",
    "Cause",
    "Context",
    "ContextLengthError",
    "Explanation",
    "FieldError",
    "Forward",
    "ForwardInput",
    "KVPool",
    "Limits",
    "PageTableUpdate",
    "PrefixGroup",
    "Req",
    "SamplingParams",
    "Staging",
    "TokenLogprobs",
    "get_global_ctx",
    "reset_global_ctx",
    "set_global_ctx",
    "with_advice",
]
