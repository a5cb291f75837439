"""What an engine does, for people and for machines to see: metrics, the block map, the time line."""
