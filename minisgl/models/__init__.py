"""Decoder models: what they look like, where their weights come from, and one file for each architecture."""

from minisgl.models.base import BaseCausalLM, create_model
from minisgl.models.checkpoint import Checkpoint, open_checkpoint
from minisgl.models.config import ModelConfig
from minisgl.models.loader import load_model
from minisgl.models.registry import MODELS
from minisgl.models.rope import RopeConfig

__all__ = [
    "MODELS",
    "BaseCausalLM",
    "Checkpoint",
    "ModelConfig",
    "RopeConfig",
    "create_model",
    "load_model",
    "open_checkpoint",
]
