"""How long the page's frames take while it draws a radix tree of 100,000 nodes: `python benchmarks/bench_page.py`.

A real Chromium polls a made-up engine, zooms and points at the tree. Prints what took the page's only thread longest.
Ends with 1 if a frame took longer than `--bound` milliseconds. Needs Chromium and Playwright, as the tests of the page.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import Browser, Page
from support.chromium import chromium
from support.engine_page import drawing, show_engine
from support.mock_activity import MockActivity
from support.mock_engine import MockEngine
from support.mock_tree import MockTree
from support.page_server import page_server

# a frame: from one callback to the next; a task: what the browser calls long, 50 ms or more
WATCH = """
window.frames_ms = []; window.tasks_ms = [];
new PerformanceObserver(list => list.getEntries().forEach(entry => tasks_ms.push(entry.duration)))
    .observe({ entryTypes: ["longtask"] });
let last = performance.now();
const tick = now => { frames_ms.push(now - last); last = now; requestAnimationFrame(tick); };
requestAnimationFrame(tick);
"""


@dataclass(frozen=True)
class Frames:
    """In milliseconds."""

    frames: list[float]
    tasks: list[float]

    def row(self, name: str) -> str:
        ordered = sorted(self.frames)
        share = [ordered[int(len(ordered) * part)] for part in (0.5, 0.99)]
        longest = max(self.tasks, default=0.0)
        return f"| {name} | {len(ordered)} | {share[0]:.0f} | {share[1]:.0f} | {ordered[-1]:.0f} | {longest:.0f} |"


def measure(browser: Browser, engine: MockEngine, seconds: float) -> Frames:
    with page_server(engine.app) as address:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(f"{address}/")
        show_engine(page)
        drawing(page).wait_for()
        page.wait_for_timeout(2000)
        page.evaluate(WATCH)
        for _ in range(max(1, round(seconds / 4))):
            walk(page)
        measured = Frames(page.evaluate("frames_ms"), page.evaluate("tasks_ms"))
        page.close()
    return measured


def walk(page: Page) -> None:
    """Some four seconds of pointing, zooming in and out, and looking on."""
    for place in range(8):
        drawing(page).hover(position={"x": 60 + 90 * place, "y": 20 + 30 * place})
        page.wait_for_timeout(60)
    drawing(page).dblclick(position={"x": 150, "y": 60})
    page.wait_for_timeout(1500)
    page.get_by_role("navigation", name="Where in the tree").get_by_role("button").first.click()
    page.wait_for_timeout(1500)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=64, help="whose lanes are drawn too")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--bound", type=float, default=200.0, help="milliseconds that a frame may take")
    options = parser.parse_args()
    print(
        "| tree | frames | median ms | 99 % ms | longest ms | longest task ms |\n| --- | --- | --- | --- | --- | --- |"
    )
    longest = 0.0
    with chromium() as browser:
        for name, unfolded in (
            ("folded by the server to 1,500", False),
            (f"all {options.nodes:,} in each answer", True),
        ):
            tree = MockTree(options.nodes, num_namespaces=3)
            activity = MockActivity(options.clients, options.clients * 3 // 4)
            engine = MockEngine(tree, activity, grows=not unfolded, unfolded=unfolded)
            engine.activity.run(30)
            measured = measure(browser, engine, options.seconds)
            print(measured.row(name), flush=True)
            longest = max(longest, *measured.tasks, 0.0) if not unfolded else longest
    return int(longest > options.bound)


if __name__ == "__main__":
    sys.exit(main())
