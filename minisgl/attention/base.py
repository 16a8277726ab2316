"""The attention interface: plan once a batch on the host, then one forward call a layer.

Shape letters: T tokens in the batch, B requests, Hq query heads, Hkv KV heads, D head dim, R page-table rows, P pages a
row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch

from minisgl.core import Batch, KVPool, Staging
from minisgl.utils.arrays import Int32Array


@dataclass(frozen=True, kw_only=True)
class AttnForm:
    """How scores become weights, and how far each layer sees.

    scale: of q . k, as a rule 1 / sqrt(D). softcap: a score s becomes softcap * tanh(s / softcap); 0: as it is.
    windows: by layer; a token sees itself and the window - 1 before it; 0: all before it.
    sinks: whether layers have them; see `BaseAttnBackend.forward`.
    """

    scale: float
    softcap: float = 0.0
    windows: tuple[int, ...]
    sinks: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class AttnConfig:
    """What a backend is made for; the heads are those of this rank. ValueError if the groups of heads are not whole.

    page_table: [R, P] int32 page numbers on the pool's device. host_table: the same numbers on the host. Both are the
    engine's, which updates them before `plan`, in place. max_running_req: the most rows of a batch.
    shared_prefix: whether a prefix that several rows share may be read once for all.
    """

    kv_pool: KVPool
    page_table: torch.Tensor
    host_table: Int32Array
    page_size: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    form: AttnForm
    max_running_req: int
    shared_prefix: bool = True

    def __post_init__(self) -> None:
        if self.num_qo_heads % self.num_kv_heads != 0:
            raise ValueError(f"num_kv_heads={self.num_kv_heads} does not divide num_qo_heads={self.num_qo_heads}")


class BaseAttnBackend(ABC):
    """Attention over the paged KV pool. Tokens lie request by request in the order of `batch.reqs`.

    can_capture: whether its forward passes of decodes may be captured in a CUDA graph, and replayed after a new plan.
    can_capture_prompts: those of prompts too, with decodes beside them or none.
    can_record: whether its forward passes of any batch may be recorded on a tape (`kernel.tape`), with metadata from
    `pin`, and played after `refill`.
    """

    can_capture: bool = False
    can_capture_prompts: bool = False
    can_record: bool = False

    def can_replay(self, batch: Batch) -> bool:
        """Whether a batch does well as a graph: where not, it is to be planned and run as it is."""
        return True

    @abstractmethod
    def plan(self, batch: Batch, staging: Staging, padded: int | None = None) -> Any:
        """Everything that the layers of one forward pass share, as a frozen value. On the host alone.

        padded: the batch runs as the graph that was captured for so many tokens, of decodes alone or of any batches
        with prompts; those beyond T have nothing to do. What goes through `staging` has capacities then that follow
        from `padded`.
        """

    def pin(self, meta: Any) -> Any:
        """A copy that stays where it is in memory. Only if `can_record`; so for `refill`."""
        raise NotImplementedError

    def refill(self, pinned: Any, meta: Any) -> None:
        """Make it a copy of the metadata of another batch of as many tokens."""
        raise NotImplementedError

    @abstractmethod
    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        meta: Any,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attend with q [T, Hq, D]; k, v [T, Hkv, D] are the new tokens' own, in the pool already: [T, Hq * D].

        The result may be overwritten by the next call with the same `meta`.
        Position p of a request sees its positions max(0, p - window + 1) .. p, or 0 .. p where the layer has no window.
        sinks [Hq], float32 or q's dtype: each head's softmax has one more score, which has no value.
        """
