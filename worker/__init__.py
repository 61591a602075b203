"""The worker service: owns one shard and its dual variables."""
