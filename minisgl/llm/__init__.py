"""`LLM` and `AsyncLLM`: engine, scheduler and tokenizer in one object. `AsyncClient`: of an engine elsewhere."""

from minisgl.llm.async_client import AsyncClient
from minisgl.llm.async_llm import AsyncLLM
from minisgl.llm.client import Delta
from minisgl.llm.config import LLMConfig
from minisgl.llm.llm import LLM
from minisgl.llm.stream import Output

__all__ = ["LLM", "AsyncClient", "AsyncLLM", "Delta", "LLMConfig", "Output"]
