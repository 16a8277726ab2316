"""Things that a user picks by name: caches, attention backends, models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """Names and what they stand for, in order of registration.

    Register factories that import what they need when called, and an optional dependency costs nothing unless chosen.

        BACKENDS: Registry[Callable[[], Backend]] = Registry("attention backend")

        @BACKENDS.register("torch")
        def make_torch_backend() -> Backend: ...

        BACKENDS["torch"]()
    """

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._items: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that files the object under `name` and returns it unchanged. ValueError if the name is taken."""
        if name in self._items:
            raise ValueError(f"{self.noun} {name!r} is registered already")

        def add(item: T) -> T:
            self._items[name] = item
            return item

        return add

    def __getitem__(self, name: str) -> T:
        """What `name` stands for; ValueError that lists the known names if it is unknown."""
        try:
            return self._items[name]
        except KeyError:
            raise ValueError(f"unknown {self.noun} {name!r}; known: {', '.join(self._items)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._items

    @property
    def names(self) -> tuple[str, ...]:
        """The known names, in order of registration."""
        return tuple(self._items)
