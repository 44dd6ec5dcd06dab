"""Worlds: where a plan becomes seconds, joules, bytes and updates."""
