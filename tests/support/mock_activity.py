"""A made-up busy engine as /inspect/activity answers it: prefill chunks, decodes, retractions. It has its own clock."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

STEP_S = 0.03
CHUNK = 512
POOL = 65536
KEPT_STEPS = 512
CAUSES = {"hit": 0, "joined": 0, "evicted": 0, "below_page": 0, "other_namespace": 0, "last_token": 0, "never_seen": 0}
CURVE = [(0.5, 0.41), (1, 0.62), (2, 0.71), (4, 0.74), (8, 0.74)]


@dataclass
class Running:
    uid: int
    prompt: int
    cached: int
    arrived_s: float
    wanted: int
    admitted_s: float | None = None
    done: int = 0
    generated: int = 0

    @property
    def state(self) -> str:
        if self.admitted_s is None:
            return "waiting"
        return "prefill" if self.done < self.prompt else "decode"

    def shown(self) -> dict[str, Any]:
        times = {"arrived_s": self.arrived_s, "admitted_s": self.admitted_s, "waits_for": None}
        sizes = {"cached_tokens": self.cached, "done_tokens": self.done, "generated_tokens": self.generated}
        name = {"uid": self.uid, "request_id": f"chat-{self.uid:05d}", "state": self.state}
        return {**name, "prompt_tokens": self.prompt, **sizes, **times}


class MockActivity:
    """num_clients: each asks again as soon as it is answered. max_running: the others wait."""

    def __init__(self, num_clients: int = 24, max_running: int = 16, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._max_running = max_running
        self.now_s = 0.0
        self._told_s = 0.0
        self._next_uid = 0
        self.steps: list[dict[str, Any]] = []
        self.num_steps = 0
        self.causes = dict(CAUSES)
        self.totals = dict.fromkeys(("computed_tokens", "generated_tokens", "evicted_tokens", "num_retracted"), 0)
        self.totals |= {"num_finished": 0, "queried_tokens": 0, "hit_tokens": 0}
        self.requests = [self._arrive() for _ in range(num_clients)]

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self._step()

    def answer(self, since: int) -> dict[str, Any]:
        return {
            "now_s": self.now_s,
            "next": self.num_steps,
            "stats": self._stats(),
            "capacity": [{"factor": factor, "hit_rate": rate} for factor, rate in CURVE],
            "causes": self.causes,
            "steps": [step for step in self.steps if step["step"] >= since],
            "requests": [request.shown() for request in self.requests[:512]],
            "latency": {name: self._spread(value) for name, value in LATENCIES.items()},
        }

    def _arrive(self) -> Running:
        prompt = int(self._random.lognormvariate(6, 0.9)) + 8
        arrived_s = self.now_s + self._random.random()
        self._next_uid += 1
        cached = int(prompt * self._random.choice((0, 0.3, 0.7, 0.95)))
        return Running(self._next_uid, prompt, cached, arrived_s, self._random.randint(4, 160))

    def _step(self) -> None:
        begin_s = self.now_s
        admitted = self._admit()
        arrived = [(each.uid, each.arrived_s, each.prompt) for each in self.requests if self._arrived(each)]
        retracted = self._retract()
        prefills, decodes, finished = [], [], []
        budget = CHUNK
        for request in self.requests:
            if request.state == "prefill" and budget:
                end = min(request.prompt, request.done + budget)
                prefills.append((request.uid, request.done, end))
                self.totals["computed_tokens"] += end - request.done
                budget -= end - request.done
                request.done = end
            elif request.state == "decode":
                decodes.append(request.uid)
                request.generated += 1
                self.totals["generated_tokens"] += 1
        took_s = STEP_S * (0.5 + 0.5 * len(decodes) / self._max_running + (CHUNK - budget) / CHUNK)
        self._told_s = self.now_s
        self.now_s += took_s
        for place, request in enumerate(self.requests):
            if request.generated >= request.wanted:
                finished.append(request.uid)
                self.requests[place] = self._arrive()
        self.totals["num_finished"] += len(finished)
        evicted = self._random.choice((0, 0, 0, 200))
        self.totals["evicted_tokens"] += evicted
        self.steps.append(
            {
                "step": self.num_steps,
                "begin_s": begin_s,
                "plan_s": took_s * 0.05,
                "launch_s": took_s * 0.05,
                "wait_s": took_s * 0.85,
                "commit_s": took_s * 0.05,
                "device_s": (begin_s + took_s * 0.1, begin_s + took_s),
                "prefills": prefills,
                "decodes": decodes,
                "arrived": arrived,
                "admitted": admitted,
                "retracted": retracted,
                "finished": finished,
                "aborted": [],
                "evicted_tokens": evicted,
                "num_waiting": sum(request.state == "waiting" for request in self.requests),
                **self._pool(),
            }
        )
        self.num_steps += 1
        del self.steps[:-KEPT_STEPS]

    def _arrived(self, request: Running) -> bool:
        """Since the step before."""
        return self._told_s < request.arrived_s <= self.now_s

    def _admit(self) -> list[int]:
        room = self._max_running - sum(request.state != "waiting" for request in self.requests)
        waiting = [each for each in self.requests if each.state == "waiting" and each.arrived_s <= self.now_s]
        for request in waiting[:room]:
            request.admitted_s = self.now_s
            request.done = request.cached
            self._explain(request)
        return [request.uid for request in waiting[:room]]

    def _explain(self, request: Running) -> None:
        missed = request.prompt - request.cached
        self.totals["queried_tokens"] += request.prompt
        self.totals["hit_tokens"] += request.cached
        self.causes["hit"] += request.cached
        self.causes["last_token"] += 1
        self.causes[self._random.choice(("never_seen", "never_seen", "evicted", "joined", "below_page"))] += missed - 1

    def _retract(self) -> list[int]:
        decoding = [request for request in self.requests if request.state == "decode"]
        if len(decoding) < self._max_running // 2 or self._random.random() > 0.02:
            return []
        decoding[-1].admitted_s = None
        decoding[-1].done = 0
        self.totals["num_retracted"] += 1
        return [decoding[-1].uid]

    def _pool(self) -> dict[str, int]:
        protected = sum(request.done for request in self.requests)
        evictable = min(POOL - protected, 3000 + 40 * self.num_steps)
        return {
            "protected_tokens": protected,
            "evictable_tokens": max(0, evictable),
            "free_tokens": max(0, POOL - protected - evictable),
        }

    def _stats(self) -> dict[str, Any]:
        states = [request.state for request in self.requests]
        running = {"num_running": len(states) - states.count("waiting"), "num_waiting": states.count("waiting")}
        pool = self._pool()
        pool["free_pages"] = pool.pop("free_tokens")
        return {**running, "num_pages": POOL, "page_size": 1, **pool, **self.totals}

    def _spread(self, seconds: float) -> dict[str, float]:
        p50 = seconds * self._random.uniform(0.9, 1.1)
        return {"p50": p50, "p90": p50 * 1.6, "p99": p50 * 2.6}


LATENCIES = {"first_token_s": 0.18, "token_gap_s": 0.031, "total_s": 2.4, "queue_s": 0.04}
