"""Attention by kernels of our own, in Triton: nothing is compiled in advance, and decodes read shared prefixes once.

Shape letters: T tokens in the batch, D decodes, Hq query heads, Hkv KV heads.
"""

from __future__ import annotations

import torch

from minisgl.attention.base import AttnConfig, BaseAttnBackend
from minisgl.attention.decode_plan import OwnPlanner
from minisgl.attention.shared_prefix import GroupCost, SharedChooser
from minisgl.attention.triton_plan import (
    MAX_PROMPTS,
    BatchWork,
    OwnPart,
    TilePart,
    TritonAttnMetadata,
    WindowPlanner,
    WorkShape,
)
from minisgl.core import Batch, Staging
from minisgl.kernel import merge_partials, paged_decode, tile_attention
from minisgl.kernel.attention_work import Weighing, decode_config, new_partials, tile_config

MIN_CAPABILITY = (8, 0)
HEAD_DIMS = range(16, 257)  # the kernels' matrix products take no fewer, and no tiles of more fit all these GPUs
MAX_GROUP = 16  # query heads that share a KV head: the least rows of such a product, so that one always holds them
SHARED_SHARE = 5 / 8  # of the processors for tiles, while what rows read alone takes the rest (docs/lab-notes.md)
CPU_PROCESSORS = 4  # work is cut for so many where there is no GPU, which is in tests
# Fitted to an H200 (docs/lab-notes.md). Rows that read the same pages alone find most of them in the GPU's cache: the
# bytes of KV they read in a microsecond. What a tile of a shared range takes instead for each token:
SHARED_BYTES_PER_US = 6.5e6
TILE_US_PER_TOKEN = 0.16e-3  # a KV head, for TILE_SIZE queries' heads times dims
TILE_SIZE = 128 * 128
SHARED_US = 9.0  # two more kernels, once a batch
GROUP_US = 0.5
EAGER_US = 300.0  # what the host takes to launch a layer call by call, of which a graph spares it nearly all


def check_supported(capability: tuple[int, int], group: int, head_dim: int, num_elements: int) -> None:
    """ValueError if the kernels cannot run so.

    group: query heads that share a KV head. num_elements: of the q, k and v of a batch.
    """
    if capability < MIN_CAPABILITY:
        raise ValueError(f"attention_backend='triton' needs compute capability 8.0 or more, not {capability}")
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"attention_backend='triton' takes head_dim 16 to 256, not {head_dim}")
    if group > MAX_GROUP:
        raise ValueError(f"attention_backend='triton' takes {MAX_GROUP} query heads a KV head at most, not {group}")
    if num_elements >= 1 << 31:
        raise ValueError(
            f"attention_backend='triton' counts the elements of a batch's q, k and v in 31 bits, which {num_elements} "
            "are too many for: lower max_extend_tokens"
        )


class TritonAttnBackend(BaseAttnBackend):
    """Decodes: what rows share in tiles (if that pays), what they have alone row by row, then both joined. Prompts:
    tiles of tokens. Keeps memory for partial results, as much as any batch needs.

    There is a plan for each window that layers have, where rows share nothing: they would seldom see it all. In a batch
    where no row is longer than the window, layers do as those without one do, unless it runs as a graph.
    """

    can_capture = can_capture_prompts = True

    def __init__(self, config: AttnConfig) -> None:
        self._config = config
        sample = config.kv_pool.k_cache(0)
        self._shape = _work_shape(config, sample)
        longest = config.page_table.shape[1] * config.page_size
        windows = [window if window < longest else 0 for window in config.form.windows]
        self._windows = sorted(set(windows))
        self._kinds = [self._windows.index(window) for window in windows]
        cost = _group_cost(config, sample, self._shape)
        chooser = SharedChooser(cost) if config.shared_prefix else None
        eager_batch = cost.batch + int(EAGER_US / _us_per_token(sample))
        self._eager_chooser = SharedChooser(cost._replace(batch=eager_batch)) if config.shared_prefix else None
        self._planners = {
            window: WindowPlanner(
                window,
                OwnPlanner(self._shape.own_columns, self._shape.own_grain, is_whole=window > 0),
                None if window else chooser,
            )
            for window in {0, *self._windows}
        }
        self._partials = new_partials(
            self._shape.num_partials(config.max_running_req),
            config.max_running_req,
            config.num_qo_heads,
            config.num_kv_heads,
            config.head_dim,
            sample.device,
        )

    def can_replay(self, batch: Batch) -> bool:
        """A graph of prompts reads nothing together: not if that would spare more than the graph does."""
        num_rows, num_decodes = len(batch.reqs), batch.num_decodes
        if num_decodes == num_rows:
            return True
        if num_rows - num_decodes > MAX_PROMPTS:
            return False
        return not (self._eager_chooser and self._eager_chooser.choose(batch.groups, num_rows, num_decodes).ranges)

    def plan(self, batch: Batch, staging: Staging, padded: int | None = None) -> TritonAttnMetadata:
        work = BatchWork(batch, staging, self._shape, padded)
        windows = [window if window and work.exceeds(window) else 0 for window in self._windows]
        planned = {window: work.plan(self._planners[window]) for window in dict.fromkeys(windows)}
        return TritonAttnMetadata(tuple(planned[window] for window in windows), work.has_gaps)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        meta: TritonAttnMetadata,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See the base class. Parts are joined in float32."""
        shape = (len(q), self._config.num_qo_heads * self._config.head_dim)
        out = q.new_zeros(shape) if meta.has_gaps else q.new_empty(shape)
        form = self._config.form
        work, weighing = meta.works[self._kinds[layer_id]], Weighing(form.scale, form.softcap, sinks)
        if work.own is not None and work.shared is not None:
            self._attend_together(q, layer_id, work.own, work.shared, out, weighing)
        elif work.own is not None:
            paged_decode(q, *self._paged(layer_id), *work.own, out, self._partials, weighing)
        if work.extends is not None:
            self._attend_prompts(q, layer_id, work.extends, out, weighing, work.window)
        return out

    def _attend_together(
        self, q: torch.Tensor, layer_id: int, own: OwnPart, shared: TilePart, out: torch.Tensor, weighing: Weighing
    ) -> None:
        """What rows share is bound by arithmetic, what they have alone by memory: so both at once."""
        work = (shared.queries, *self._paged(layer_id), shared.items, shared.columns)
        tile_attention(q, *work, out, self._partials, weighing, causal=False)
        paged_decode(q, *self._paged(layer_id), *own, out, self._partials._replace(beside=True), weighing)
        self._join(out, shared, weighing)

    def _attend_prompts(
        self, q: torch.Tensor, layer_id: int, extends: TilePart, out: torch.Tensor, weighing: Weighing, window: int
    ) -> None:
        work = (extends.queries, *self._paged(layer_id), extends.items, extends.columns)
        tile_attention(q, *work, out, self._partials, weighing, causal=True, window=window)
        self._join(out, extends, weighing)

    def _join(self, out: torch.Tensor, part: TilePart, weighing: Weighing) -> None:
        if part.parts is not None and part.part_begins is not None:
            merge_partials(out, self._partials, part.parts, part.part_begins, weighing.sinks)

    def _paged(self, layer_id: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
        """The keys and values of a layer, and where those of a row lie."""
        pool = self._config.kv_pool
        return pool.k_cache(layer_id), pool.v_cache(layer_id), self._config.page_table, self._config.page_size


def _work_shape(config: AttnConfig, sample: torch.Tensor) -> WorkShape:
    decode, tile = decode_config(sample.dtype, config.head_dim), tile_config(sample.dtype, config.head_dim)
    group = config.num_qo_heads // config.num_kv_heads
    processors = _num_processors(sample.device)
    tile_columns = max(1, processors // config.num_kv_heads)
    return WorkShape(
        own_columns=max(1, processors * decode.programs_per_sm // config.num_kv_heads),
        own_grain=decode.block,
        tile_columns=tile_columns,
        shared_columns=max(1, int(SHARED_SHARE * tile_columns)),
        tile_grain=tile.block,
        tile_rows=tile.rows // group,
    )


def _group_cost(config: AttnConfig, sample: torch.Tensor, shape: WorkShape) -> GroupCost:
    us_per_token = _us_per_token(sample)
    tile_size = tile_config(sample.dtype, config.head_dim).rows * config.head_dim
    return GroupCost(
        rows=TILE_US_PER_TOKEN * max(1.0, tile_size / TILE_SIZE) * config.num_kv_heads / us_per_token,
        tokens=int(GROUP_US / us_per_token),
        tile=shape.tile_rows,
        batch=int(SHARED_US / us_per_token),
    )


def _us_per_token(sample: torch.Tensor) -> float:
    """For one row that reads what others read too, alone."""
    return 2 * sample[0].nbytes / SHARED_BYTES_PER_US


def _num_processors(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return CPU_PROCESSORS
