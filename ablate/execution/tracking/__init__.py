"""Mirrors runs on disk to a tracking service."""
