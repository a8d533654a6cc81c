"""What a job keeps about its epochs."""
