"""Types of fields that several endpoints share: their ranges are OpenAI's, or those of `SamplingParams`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from minisgl.core.limits import MAX_PRIORITY, MIN_PRIORITY
from minisgl.core.sampling_params import INT64_MAX, INT64_MIN, MAX_CHOICES, MAX_STOP_LENGTH, MAX_STOP_STRINGS

MAX_PROMPTS = 2048
MAX_TOKEN_IDS = 1024  # in a list that every sequence of the request has of its own
_INT31 = 2**31 - 1
_ADVISED = ", or what the model's files advise."

TokenId = Annotated[int, Meta(ge=0, le=_INT31)]
Count = Annotated[int, Meta(ge=0, le=_INT31)]
Temperature = Annotated[
    float, Meta(ge=0, le=2, description="0 takes the most likely token; higher is more random. Default 1" + _ADVISED)
]
TopP = Annotated[
    float,
    Meta(
        ge=0, le=1, description="Choose among the best tokens that together have this probability. Default 1" + _ADVISED
    ),
]
TopK = Annotated[
    int,
    Meta(
        ge=-1, le=INT64_MAX, description="Choose among this many best tokens; 0 and -1 are off. Default -1" + _ADVISED
    ),
]
MinP = Annotated[
    float,
    Meta(
        ge=0, le=1, description="Leave out tokens below this share of the best one's probability. Default 0" + _ADVISED
    ),
]
Penalty = Annotated[
    float, Meta(ge=-2, le=2, description="Above 0 makes tokens that were generated before less likely. Default 0.")
]
RepetitionPenalty = Annotated[
    float,
    Meta(ge=0.001, le=1000, description="Above 1 makes tokens of prompt and answer less likely. Default 1" + _ADVISED),
]
Seed = Annotated[
    int, Meta(ge=INT64_MIN, le=INT64_MAX, description="Makes the random choices repeatable; choice i has its own.")
]
NumChoices = Annotated[int, Meta(ge=1, le=MAX_CHOICES, description="Independent answers for a prompt. Default 1.")]
MaxTokens = Annotated[
    int, Meta(ge=0, le=_INT31, description="Generate at most this many; what does not fit the context is cut.")
]
MinTokens = Annotated[
    int, Meta(ge=0, le=_INT31, description="No end token, stop token or stop string before this many. Default 0.")
]
LogitBias = Annotated[
    dict[Annotated[int, Meta(ge=0)], Annotated[float, Meta(ge=-100, le=100)]],
    Meta(
        max_length=MAX_TOKEN_IDS,
        description="Added to the logits of these token ids.",
        extra_json_schema={"propertyNames": {"pattern": "^[0-9]{1,9}$"}},
    ),
]
StopString = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)]
Stop = StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)]
StopTokenIds = Annotated[
    list[TokenId],
    Meta(
        max_length=MAX_TOKEN_IDS,
        description="These tokens end the answer like an end token, under ignore_eos too.",
    ),
]
MustBeFalse = Annotated[bool, Meta(extra_json_schema={"const": False})]
Priority = Annotated[
    int,
    Meta(
        ge=MIN_PRIORITY,
        le=MAX_PRIORITY,
        description="Larger goes first with --policy priority, and is kept longer with --eviction priority."
        " Default 0; without these flags the only one.",
    ),
]
Explain = Annotated[
    bool,
    Meta(description="Say why the prompt's tokens were computed, or not; headers and a stream's first event have it."),
]
CacheSalt = Annotated[
    str, Meta(min_length=1, max_length=1024, description="Only requests of the same salt share cached prefixes.")
]
