"""How long the page's frames take while it draws a radix tree of 100,000 nodes: `python benchmarks/bench_page.py`.

A real Chromium polls a made-up engine, zooms and points at the tree, while it is traced. A frame is no longer than the
task of the page's only thread that makes it; a task's time on the processor says so on a busy machine too. Ends with 1
if a task took longer than `--bound` milliseconds of it. Needs Chromium and Playwright, as the tests of the page.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import Browser, Page
from support.chromium import chromium
from support.engine_page import drawing, show_engine
from support.mock_activity import MockActivity
from support.mock_engine import MockEngine
from support.mock_tree import MockTree
from support.page_server import page_server

TRACED = ["toplevel", "disabled-by-default-devtools.timeline"]


@dataclass(frozen=True)
class Tasks:
    """Of the page's thread, in milliseconds: on the processor, and by the clock."""

    processor: list[float]
    clock: list[float]
    seconds: float

    def row(self, name: str) -> str:
        busy = sum(self.processor) / self.seconds / 10
        most = sorted(self.processor)[int(len(self.processor) * 0.99)]
        longest = max(self.processor)
        return f"| {name} | {busy:.0f} | {most:.1f} | {longest:.0f} | {max(self.clock):.0f} |"


def measure(browser: Browser, engine: MockEngine, seconds: float) -> Tasks:
    with page_server(engine.app) as address:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(f"{address}/")
        show_engine(page)
        drawing(page).wait_for()
        page.wait_for_timeout(2000)
        browser.start_tracing(page=page, categories=TRACED)
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            walk(page)
        took = time.perf_counter() - begin
        events = json.loads(browser.stop_tracing())["traceEvents"]
        page.close()
    tasks = main_tasks(events)
    return Tasks([task["tdur"] / 1000 for task in tasks], [task["dur"] / 1000 for task in tasks], took)


def main_tasks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the page's thread did, one thing after the other."""
    names = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    tasks = [each for each in events if each["name"] == "RunTask" and "tdur" in each]
    return [each for each in tasks if names.get((each["pid"], each["tid"])) == "CrRendererMain"]


def walk(page: Page) -> None:
    """Pointing, zooming in and out, and looking on."""
    for place in range(8):
        drawing(page).hover(position={"x": 60 + 90 * place, "y": 20 + 30 * place})
        page.wait_for_timeout(60)
    with page.expect_response("**/inspect/tree?node=*"):
        drawing(page).dblclick(position={"x": 150, "y": 60})
    page.wait_for_timeout(1500)
    with page.expect_response("**/inspect/tree?max_nodes=*"):
        page.get_by_role("navigation", name="Where in the tree").get_by_role("button").first.click()
    page.wait_for_timeout(1500)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=64, help="whose lanes are drawn too")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--bound", type=float, default=200.0, help="milliseconds on the processor that a task may take")
    options = parser.parse_args()
    print("| tree | processor, % | 99 % of tasks, ms | longest, ms | longest by the clock, ms |\n" + "| --- " * 5 + "|")
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
            longest = max(longest, *measured.processor)
    return int(longest > options.bound)


if __name__ == "__main__":
    sys.exit(main())
