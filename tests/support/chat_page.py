"""What a person does with the page's chat, for tests."""

from __future__ import annotations

from playwright.sync_api import Locator, Page

NARROW = {"width": 1100, "height": 800}  # the chat alone, with the list of conversations beside it


class ChatPage:
    """The chat of a page that is open."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.field = page.get_by_label("Message", exact=True)
        self.turns = page.locator(".turn")
        self.titles = page.locator(".conversations .title")

    def say(self, text: str, wait: bool = True) -> None:
        """wait: until the answer is there, or has failed."""
        self.field.fill(text)
        before = self.turns.count()
        self.field.press("Enter")
        if wait:
            self.turns.nth(before + 1).locator(".answer-line, .error").first.wait_for()

    def turn(self, index: int) -> Locator:
        return self.turns.nth(index)

    def bubble(self, index: int) -> str:
        """The text of one turn."""
        return self.turn(index).locator(".bubble").inner_text()

    def press(self, index: int, name: str) -> None:
        """A button of one turn."""
        self.turn(index).hover()
        self.turn(index).get_by_role("button", name=name, exact=True).click()

    def figures(self, index: int) -> list[str]:
        """What stands under an answer, such as "36 cached"."""
        return [text.strip() for text in self.turn(index).locator(".figures > li").all_inner_texts() if text.strip()]

    def marks(self, index: int) -> list[tuple[str, str]]:
        """Cause and text of what is lit up in one turn, or in the field that it is changed in."""
        found = self.turn(index).locator("mark").all()
        return [(mark.get_attribute("data-cause") or "", mark.text_content() or "") for mark in found]

    def count(self, *said: str) -> int:
        """Tokens of a prompt with these turns, the user's first."""
        messages = [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(said)]
        answer = self.page.request.post(f"{self.page.url}tokenize", data={"messages": messages})
        count: int = answer.json()["count"]
        return count
