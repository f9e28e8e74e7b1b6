"""The built site, as people meet it: in Chromium."""
