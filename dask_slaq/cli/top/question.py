"""A question that is answered by y or n."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import Static

__all__ = ["Question"]


class Question(ModalScreen[bool]):
    """Dialog that is dismissed with whether the answer was yes.

    Parameters
    ----------
    text : str
        The question.
    """

    CSS = """
    Question { align: center middle; }
    Question > Static { width: auto; max-width: 80%; padding: 1 2; border: thick $error;
                        background: $surface; }
    """
    BINDINGS: ClassVar = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        """Show the question."""
        yield Static(f"{self.text}  [y/n]", markup=False)

    def action_answer(self, yes: bool) -> None:
        """Close the dialog with an answer."""
        self.dismiss(yes)
