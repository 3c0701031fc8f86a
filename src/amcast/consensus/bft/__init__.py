"""The log of a group of 3f+1 processes of which f may lie."""

from .log import Bft
from .messages import BftMessage, BftRecord

__all__ = ["Bft", "BftMessage", "BftRecord"]
