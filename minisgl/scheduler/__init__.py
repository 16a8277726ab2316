"""Requests, pages and the order of work. Read request.py, cache_manager.py, scheduler.py, loop.py."""
