"""Regular expressions from users, matched in linear time."""
