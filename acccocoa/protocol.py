"""Facts of the wire that both sides must agree on, beyond the messages themselves."""

PROTOCOL_VERSION = 9
"""Raised when a message changes its meaning; a peer of another version is refused."""

HEARTBEAT_SECONDS = 1.0
"""A worker that computes sends a sign of life this often."""


def version_mismatch(theirs: int, their_software: str, my_software: str) -> str | None:
    """Why a peer of that protocol version cannot be talked to; None when it can."""
    if theirs == PROTOCOL_VERSION:
        return None
    return (
        f"speaks protocol version {theirs} (acccocoa {their_software or 'unknown'}), "
        f"this side speaks {PROTOCOL_VERSION} (acccocoa {my_software})"
    )
