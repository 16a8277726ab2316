"""Answers in one form, whether they came whole or in events: so that a test can compare them."""

from __future__ import annotations

from typing import Any


def joined_chat(events: list[Any]) -> list[dict[str, Any]]:
    """Every choice, put together as clients do."""
    choices: dict[int, dict[str, Any]] = {}
    for choice in (choice for event in events for choice in event["choices"]):
        made = choices.setdefault(choice["index"], {"text": "", "reason": None, "logprobs": [], "roles": 0})
        assert made["reason"] is None, "something came after the finish reason"
        made["text"] += choice["delta"].get("content") or ""
        made["roles"] += choice["delta"].get("role") == "assistant"
        made["logprobs"] += (choice["logprobs"] or {}).get("content", [])
        made["reason"] = choice["finish_reason"]
    assert all(made.pop("roles") == 1 for made in choices.values())
    return [choices[index] for index in sorted(choices)]


def whole_chat(body: Any) -> list[dict[str, Any]]:
    assert [choice["index"] for choice in body["choices"]] == list(range(len(body["choices"])))
    return [
        {
            "text": choice["message"]["content"],
            "reason": choice["finish_reason"],
            "logprobs": (choice["logprobs"] or {}).get("content", []),
        }
        for choice in body["choices"]
    ]


def joined_completion(events: list[Any]) -> list[dict[str, Any]]:
    choices: dict[int, dict[str, Any]] = {}
    for choice in (choice for event in events for choice in event["choices"]):
        made = choices.setdefault(choice["index"], {"text": "", "reason": None, "logprobs": {}})
        assert made["reason"] is None, "something came after the finish reason"
        made["text"] += choice["text"]
        made["reason"] = choice["finish_reason"]
        for name, values in (choice["logprobs"] or {}).items():
            made["logprobs"].setdefault(name, []).extend(values)
    return [choices[index] for index in sorted(choices)]


def whole_completion(body: Any) -> list[dict[str, Any]]:
    assert [choice["index"] for choice in body["choices"]] == list(range(len(body["choices"])))
    return [
        {"text": choice["text"], "reason": choice["finish_reason"], "logprobs": choice["logprobs"] or {}}
        for choice in body["choices"]
    ]
