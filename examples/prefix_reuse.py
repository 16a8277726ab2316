"""Prefix reuse end to end: one long system prompt, many questions; without a prefix cache and with the radix cache."""

import time

from minisgl import LLM, SamplingParams

system = "You are a helpful assistant. Answer concisely and accurately. " * 12
questions = [f"What is {n} times {n}?" for n in range(2, 10)]
prompts = [system + question for question in questions]

answers = {}
for cache_type in ("naive", "radix"):
    with LLM("smollm2", dtype="float32", cache_type=cache_type) as llm:
        begin = time.perf_counter()
        outputs = llm.generate(prompts, SamplingParams(max_tokens=8))
        seconds = time.perf_counter() - begin
        total = sum(output["prompt_tokens"] for output in outputs)
        cached = sum(output["cached_tokens"] for output in outputs)
        print(f"{cache_type}: {total} prompt tokens, {total - cached} computed, {seconds:.1f} s")
        answers[cache_type] = [output["token_ids"] for output in outputs]

print("the same tokens:", answers["naive"] == answers["radix"])
