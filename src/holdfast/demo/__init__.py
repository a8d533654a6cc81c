"""The Wikipedia demo: synthetic edits, and the story that is told with them."""
