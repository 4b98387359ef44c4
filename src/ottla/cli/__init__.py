"""The `ottla` command. Modules here are imported when their command runs, so that help stays quick."""
