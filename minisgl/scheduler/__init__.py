"""Requests, pages and the order of work. Read request.py, cache_manager.py, scheduler.py, loop.py."""

from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.config import SchedulerConfig
from minisgl.scheduler.loop import Loop
from minisgl.scheduler.scheduler import Scheduler

__all__ = ["CacheManager", "Loop", "Scheduler", "SchedulerConfig"]
