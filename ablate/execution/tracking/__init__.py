"""Sends runs on disk to tracking services."""
