"""What is wrong with a request, so that whoever passes it on knows where."""

from __future__ import annotations


class FieldError(ValueError):
    """One field is wrong. field: its name, such as "top_p" or "messages[2].content", with which the message begins."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
