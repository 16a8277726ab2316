"""`LLM` and `AsyncLLM`: engine, scheduler and tokenizer in one object."""

from minisgl.llm.async_llm import AsyncLLM
from minisgl.llm.client import Delta
from minisgl.llm.config import LLMConfig
from minisgl.llm.llm import LLM
from minisgl.llm.stream import Output

__all__ = ["LLM", "AsyncLLM", "Delta", "LLMConfig", "Output"]
