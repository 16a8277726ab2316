"""What a running server's engine does, followed step by step over /inspect/activity."""

from __future__ import annotations

from http import HTTPStatus

from minisgl.cli.api_client import ApiClient, message_of, read_answer
from minisgl.server.schema.activity import ActivityNow

PATH = "/inspect/activity"
NO_STEPS = 2**53  # as many as there will never be


class ActivityFeed:
    """Asks for what is new. num_lost: steps that were gone before they were asked for.

    has_restarted: whether the last answer came from another engine than the one before.
    """

    def __init__(self, client: ApiClient) -> None:
        self.num_lost = 0
        self.has_restarted = False
        self._client = client
        self._since, self._now_s = NO_STEPS, 0.0

    def ask(self) -> ActivityNow:
        """With the steps since the last time; of an engine that is asked for the first time none.

        OSError when the server cannot be reached, has no engine now or too much to do; ValueError when it refuses, or
        is another one.
        """
        status, body = self._client.answer("GET", f"{PATH}?since={self._since}")
        if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
            raise OSError(message_of(body, status))
        if status != HTTPStatus.OK:
            raise ValueError(f"{PATH}: {message_of(body, status)}")
        activity = read_answer(PATH, body, ActivityNow)
        is_behind = activity.now_s < self._now_s or activity.next < self._since
        self.has_restarted = is_behind and self._since != NO_STEPS
        if self.has_restarted:
            activity.steps = []
        elif activity.steps:
            self.num_lost += activity.steps[0].step - self._since
        self._since, self._now_s = activity.next, activity.now_s
        return activity
