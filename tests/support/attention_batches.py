"""Batches that tell attention backends apart, with and without windows."""

from __future__ import annotations

from support.attention import AttentionCase, Row, Shape

from minisgl.attention import AttnForm

BATCHES = {
    "one token in all": [Row(0, 1)],
    "one decode": [Row(70, 1)],
    "decodes of equal lengths": [Row(40, 1)] * 5,
    "decodes of unlike lengths": [Row(n, 1) for n in (3, 200, 17, 64, 1, 130, 5)],
    "one prompt": [Row(0, 33)],
    "prompts of equal lengths": [Row(0, 12)] * 3,
    "prompts of unlike lengths": [Row(0, 5), Row(0, 70), Row(0, 2), Row(0, 5)],
    "chunks after cached tokens": [Row(64, 9), Row(3, 20), Row(64, 9)],
    "decodes, a chunk and new prompts": [Row(50, 1), Row(7, 1), Row(64, 30), Row(0, 30), Row(0, 1), Row(128, 2)],
    "decodes that share a prefix": [Row(n, 1, shared=256) for n in (256, 257, 300, 259)],
    "two prefixes and one row without": [
        *(Row(260 + i, 1, shared=256, prefix=0) for i in range(4)),
        Row(90, 1),
        *(Row(330, 1 + i, shared=320, prefix=1) for i in range(3)),
    ],
    "extends that share a prefix": [
        Row(256, 7, shared=256),
        Row(256, 7, shared=256),
        Row(300, 9, shared=256),
        Row(0, 4),
    ],
    "a prefix that ends inside some rows": [Row(500, 3, shared=448), Row(460, 1, shared=448), Row(320, 5, shared=320)],
}

MIXED = [*(Row(140, 1, shared=128) for _ in range(6)), Row(30, 1), Row(256, 4, shared=128), Row(0, 21)]

WINDOW = 20
WINDOWED = {
    "decodes around the window": [Row(n, 1) for n in (0, 18, 19, 20, 21, 200)],
    "a prompt longer than the window": [Row(0, 70)],
    "prompts around the window": [Row(0, n) for n in (1, 2, 19, 20, 21, 22, 70, 21)],
    "chunks after cached tokens": [Row(n, 9) for n in (0, 10, 11, 12, 20, 21, 300)],
    "a chunk longer than the window after fewer": [Row(7, 50), Row(1, 20)],
    "decodes, chunks and prompts": [Row(50, 1), Row(7, 1), Row(64, 30), Row(0, 30), Row(0, 1), Row(128, 2)],
    "a prefix longer than the window": [Row(256, 7, shared=256), Row(300, 1, shared=256), Row(256, 30, shared=256)],
    "a prefix shorter than the window": [Row(17, 1, shared=16), Row(16, 2, shared=16), Row(40, 3, shared=16)],
}


def windowed(rows: list[Row], shape: Shape, window: int = WINDOW, **options: object) -> AttentionCase:
    """Layer 0 sees `window` tokens, layer 1 all."""
    form = AttnForm(scale=shape.head_dim**-0.5, windows=(window, 0))
    return AttentionCase(rows, shape, form=form, **options)
