"""Wikipedia edits as a stream: live, from a file, or made up; into Kafka or a file log."""
