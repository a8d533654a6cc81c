"""What Prometheus reads about jobs: computed from the registry, so it outlives every driver."""
