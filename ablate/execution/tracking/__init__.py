"""Runs on disk mirrored to a tracking service."""
