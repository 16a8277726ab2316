"""The page's view of a made-up engine, opened."""

from __future__ import annotations

from playwright.sync_api import FloatRect, Locator, Page

ROOT = 20  # pixels: the column of everything


def show_engine(page: Page) -> Page:
    page.get_by_role("button", name="Engine", exact=True).click()
    return page


def drawing(page: Page) -> Locator:
    return page.locator(".tree-drawing canvas")


def box_of(drawn: Locator) -> FloatRect:
    box = drawn.bounding_box()
    assert box is not None
    return box


def painted(canvas: Locator) -> int:
    """How many of its pixels are not empty."""
    count: int = canvas.evaluate(
        """canvas => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let count = 0;
            for (let place = 3; place < data.length; place += 4) count += data[place] > 0;
            return count;
        }"""
    )
    return count


def painted_colours(canvas: Locator) -> int:
    """How many colours have a hundredth of its pixels or more."""
    count: int = canvas.evaluate(
        """canvas => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const pixels = new Map(), words = new Uint32Array(data.buffer);
            for (const word of words) pixels.set(word, (pixels.get(word) ?? 0) + 1);
            return [...pixels.values()].filter(number => number > words.length / 100).length;
        }"""
    )
    return count
