"""Requests, pages and the order of work.

Read request.py, cache_manager.py, scheduler.py and loop.py: the life of a request, its pages, and the cycle of plan and
commit. planner.py chooses the work of a batch. Behind it are two rooms, each read from its first file on:

- who starts:    admission.py, waiting.py, line.py, ordering.py (ranking.py, sorted_run.py), ageing.py,
                 followers.py, joining.py
- who has room:  retraction.py, reserve.py
"""
