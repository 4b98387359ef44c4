"""Golden scripts: conversations of the protocol, played step by step with a hand on every message."""
