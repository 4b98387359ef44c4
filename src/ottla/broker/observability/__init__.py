"""What a node shows of itself to people and their tools. Nothing that serves a client waits for anything here."""
