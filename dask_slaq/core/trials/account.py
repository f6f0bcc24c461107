"""Account of a search: how many threads it is due while others want them, too."""

from __future__ import annotations

import math

__all__ = ["Account"]

#: Bounds of the balance, in thread-seconds.
MOST = 1.0


class Account:
    """Balance between the share that a search is granted and the threads that it uses.

    Examples
    --------
    A share of half a thread is one thread, half of the time:

    >>> account, used, due = Account(), 0, []
    >>> for _ in range(8):
    ...     account.update(share=0.5, used=used, seconds=0.5)
    ...     used = account.due(share=0.5)
    ...     due.append(used)
    >>> due
    [1, 0, 1, 0, 1, 0, 1, 0]
    """

    def __init__(self) -> None:
        self.balance = 0.0

    def update(self, share: float, used: int, seconds: float) -> None:
        """Credit a share and charge threads used.

        Parameters
        ----------
        share : float
            Threads granted.
        used : int
            Threads used.
        seconds : float
            Time for which both held.
        """
        self.balance += (share - used) * seconds
        self.balance = min(max(self.balance, -MOST), MOST)

    def due(self, share: float) -> int:
        """Return the threads that the search may use now."""
        return math.floor(share) + (self.balance > 0)
