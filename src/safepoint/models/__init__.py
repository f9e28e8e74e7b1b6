"""Model files: read as data, loaded without running code; and code that loads them, looked at."""
