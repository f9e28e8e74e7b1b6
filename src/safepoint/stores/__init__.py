"""Where bytes are kept: files, SQLite, PostgreSQL. They move bytes and decode nothing."""
